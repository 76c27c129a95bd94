"""Every client has S shards of one class each, and may get two of the same class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.partitioners.base import Dealt, register
from pfl_benchmark.datasets.partitioners.distinct import Distinct, count_classes, deal_classes
from pfl_benchmark.datasets.pools import ClassPools
from pfl_benchmark.datasets.splits import Split


@register
@dataclass(frozen=True)
class Shards(Distinct):
    """S shards of one class for every client, perhaps two of the same (FedRep, utils/sampling.py)."""

    name: ClassVar[str] = "shards"

    @property
    def slug(self) -> str:
        return f"shards{self.classes_per_client}"

    def describe(self) -> str:
        plural = "s" * (self.classes_per_client > 1)
        return f"{self.classes_per_client} shard{plural} and {self.samples_per_client} training images each"

    def deal(self, labels: np.ndarray, pools: ClassPools, rng: np.random.Generator) -> Dealt:
        classes = len(pools.sizes)
        dealt = count_classes(deal_classes(self.clients, self.classes_per_client, classes, rng), classes)
        shard_sizes = pools.sizes // np.maximum(dealt.sum(axis=0), 1)
        shards = pools.take(dealt * shard_sizes)
        train = [rng.permutation(pool)[: self.samples_per_client] for pool in shards]
        # A short training part may miss a class that was dealt; such a class is not tested.
        present = Split(tuple(train), ()).class_counts(labels)
        dealt[:, : present.shape[1]] *= present > 0
        return train, dealt

    def room(self, train: np.ndarray, test: np.ndarray) -> tuple[tuple[int, str], tuple[int, str]]:
        return self.room_by_classes(train, test)
