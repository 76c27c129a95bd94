"""Groups of clients with merged labels: what is one class to some is two to others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.shifts.base import register
from pfl_benchmark.datasets.shifts.groups import Groups


@register
@dataclass(frozen=True)
class Merge(Groups):
    """Classes are merged in pairs, in each group others; a pair bears the smaller label of the two."""

    name: ClassVar[str] = "merge"
    least: ClassVar[int] = 3

    def describe(self) -> str:
        return f"classes merged in pairs, others in each of {self.groups} groups"

    def labels(self, classes: int, rng: np.random.Generator) -> np.ndarray:
        pairs = rng.permutation(classes)[: classes // 2 * 2].reshape(-1, 2)
        names = np.arange(classes)
        names[pairs.max(1)] = pairs.min(1)
        return names

    def most(self, classes: int) -> float:
        classes = min(classes, 20)
        pairs = classes // 2
        return math.factorial(classes) // (math.factorial(pairs) * 2**pairs)
