"""Groups of clients with permuted labels: no single model can be right for all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.shifts.base import register
from pfl_benchmark.datasets.shifts.groups import Groups


@register
@dataclass(frozen=True)
class Permute(Groups):
    """Labels are permuted, in each group otherwise; in the first they stay (Ghosh et al., NeurIPS 2020)."""

    name: ClassVar[str] = "permute"

    def describe(self) -> str:
        return f"labels permuted in {self.groups} groups"

    def first(self, classes: int) -> list[np.ndarray]:
        return [np.arange(classes)]

    def labels(self, classes: int, rng: np.random.Generator) -> np.ndarray:
        return rng.permutation(classes)

    def most(self, classes: int) -> float:
        return math.factorial(min(classes, 20))
