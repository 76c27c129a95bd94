"""Wrong labels of training samples, of which each class has one that it is taken for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.shifts.base import register
from pfl_benchmark.datasets.shifts.noise import Noise


@register
@dataclass(frozen=True)
class Pairwise(Noise):
    """A wrong label is the class behind the right one; behind the last class comes the first."""

    name: ClassVar[str] = "pairwise"

    def describe(self) -> str:
        return f"{self.share()} of training labels one class too far"

    def wrong(self, y: np.ndarray, classes: int, rng: np.random.Generator) -> np.ndarray:
        return (y + 1) % classes
