"""What was read of a folder or file of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Found"]


@dataclass(frozen=True, eq=False)
class Found:
    """Images in the order in which they count as samples.

    x: uint8 [N, C, H, W].
    labels: the class of each, by name.
    class_names: all classes in their order.
    clients: the client of each, by name; None where there are none.
    test: bool [N], which are for testing; None where the data do not say.
    told: what was found, in words.
    """

    x: np.ndarray
    labels: Sequence[str]
    class_names: tuple[str, ...]
    clients: Sequence[str] | None
    test: np.ndarray | None
    told: str
