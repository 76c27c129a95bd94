"""What was read of a folder or file of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pfl_benchmark.datasets.data import Kind

__all__ = ["Found", "in_order", "padded"]


@dataclass(frozen=True, eq=False)
class Found:
    """Samples in the order in which they count.

    x: as `Samples` has them, for their `kind`.
    labels: the class of each, by name.
    class_names: all classes in their order.
    clients: the client of each, by name; None where there are none.
    test: bool [N], which are for testing; None where the data do not say.
    told: what was found, in words.
    kind: of the samples.
    features: names of the columns of rows.
    numeric: those of them that are measured, by number.
    symbols: size of the alphabet of characters.
    vectors: of words.
    scale: mean and deviation by channel to normalise images by; None: those of the training images.
    """

    x: np.ndarray
    labels: Sequence[str]
    class_names: tuple[str, ...]
    clients: Sequence[str] | None
    test: np.ndarray | None
    told: str
    kind: Kind = "images"
    features: tuple[str, ...] = ()
    numeric: tuple[int, ...] = ()
    symbols: int = 0
    vectors: np.ndarray | None = None
    scale: tuple[tuple[float, ...], tuple[float, ...]] | None = None


def in_order(names: Sequence[str]) -> list[str]:
    """Different names, by their numbers if they are whole numbers, else by the alphabet."""
    if all(name.removeprefix("-").isdecimal() for name in names):
        return sorted({*names}, key=lambda name: (int(name), name))
    return sorted({*names})


def padded(names: Sequence[str]) -> list[str]:
    """Names whose order is that of the numbers, if they are whole numbers; different names stay different."""
    width = max(map(len, names), default=0) if all(name.isdecimal() for name in names) else 0
    filled = [name.zfill(width) for name in names]
    return filled if len(set(filled)) == len(set(names)) else list(names)
