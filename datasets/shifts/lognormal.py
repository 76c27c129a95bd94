"""Sizes of clients that are log-normal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.shifts.base import Draw, option, register
from pfl_benchmark.datasets.shifts.sizes import Sizes


@register
@dataclass(frozen=True)
class LogNormal(Sizes):
    """Shares that clients keep are log-normal, the largest one is all."""

    name: ClassVar[str] = "lognormal"
    sigma: float = option(1.0, "deviation of the logarithm of a client's size", "(0, 10]")

    def describe(self) -> str:
        return f"log-normal numbers of training samples, sigma {self.sigma:g}"

    def shares(self, numbers: Sequence[int], draw: Draw) -> np.ndarray:
        logs = self.sigma * np.array([draw("sizes", number).standard_normal() for number in numbers])
        return np.exp(logs - logs.max())
