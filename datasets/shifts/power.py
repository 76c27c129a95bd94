"""Sizes of clients that fall by a power law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.shifts.base import Draw, option, register
from pfl_benchmark.datasets.shifts.sizes import Sizes


@register
@dataclass(frozen=True)
class Power(Sizes):
    """The k-th largest client keeps k^-X of its training samples; who is the k-th is drawn."""

    name: ClassVar[str] = "power"
    exponent: float = option(1.0, "the exponent X", "(0, 10]")

    def describe(self) -> str:
        return f"numbers of training samples by a power law, exponent {self.exponent:g}"

    def shares(self, numbers: Sequence[int], draw: Draw) -> np.ndarray:
        ranks = draw("sizes", 0).permutation(max(numbers) + 1)[np.array(numbers)]
        return (ranks + 1.0) ** -self.exponent
