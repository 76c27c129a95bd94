"""Clients of unequal size: of their training samples they keep a share, at least one; test samples stay."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pfl_benchmark.datasets.shifts.base import Draw, Shift
from pfl_benchmark.datasets.shifts.samples import ClientSamples


@dataclass(frozen=True)
class Sizes(Shift):
    """A client keeps a random part of its training samples."""

    kind: ClassVar[str] = "quantity"
    place: ClassVar[int] = 10
    resizes: ClassVar[bool] = True

    @abstractmethod
    def shares(self, numbers: Sequence[int], draw: Draw) -> np.ndarray:
        """What share of their training samples clients keep, [K], the largest 1."""

    def apply(self, samples: ClientSamples, draw: Draw) -> Mapping[str, Any]:
        shares = self.shares(samples.numbers, draw)
        for client, (number, share) in enumerate(zip(samples.numbers, shares, strict=True)):
            size = len(samples.get(client, "train")[1])
            kept = draw("quantity", number).permutation(size)[: max(1, round(share * size))]
            samples.keep(client, "train", np.sort(kept))
        return {}
