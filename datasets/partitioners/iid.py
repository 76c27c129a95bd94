"""Random parts of equal size, without regard to classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.partitioners.base import ByLabels, Dealt, register
from pfl_benchmark.datasets.pools import ClassPools


@register
@dataclass(frozen=True)
class Iid(ByLabels):
    """Random parts of equal size: clients are all alike."""

    name: ClassVar[str] = "iid"
    mixed: ClassVar[bool] = True

    def describe(self) -> str:
        return f"all alike, {self.samples_per_client} training images each"

    def deal(self, labels: np.ndarray, pools: ClassPools, rng: np.random.Generator) -> Dealt:
        counts = np.full((self.clients, 1), self.samples_per_client)
        return pools.take(counts), counts
