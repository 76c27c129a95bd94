"""Other classes than a client had: what may happen to its data in the course of a run (`drift`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pfl_benchmark.datasets.shifts.base import Draw, Shift, register
from pfl_benchmark.datasets.shifts.samples import HALVES, ClientSamples


@register
@dataclass(frozen=True)
class OtherClasses(Shift):
    """Clients get as many samples of classes that they do not have, the same in training and in testing."""

    kind: ClassVar[str] = "classes"
    name: ClassVar[str] = "other"
    place: ClassVar[int] = 15

    def describe(self) -> str:
        return "other classes"

    def apply(self, samples: ClientSamples, draw: Draw) -> Mapping[str, Any]:
        dataset, found = samples.dataset, []
        for client, number in enumerate(samples.numbers):
            rng = draw("classes", number)
            had = np.unique(samples.get(client, "train")[1])
            known = np.intersect1d(np.unique(dataset.train.y), np.unique(dataset.test.y))
            free = np.setdiff1d(known, had)
            if not len(free):  # it has all of them
                found.append(sorted(had.tolist()))
                continue
            chosen = rng.permutation(free)[: len(had)]
            for half in HALVES:
                pool, size = getattr(dataset, half), len(samples.get(client, half)[1])
                rows = np.flatnonzero(np.isin(pool.y, chosen))
                taken = rng.permutation(rows)[:size]
                if len(taken) < size:  # a small dataset: some twice
                    taken = np.concatenate([taken, rng.choice(rows, size - len(taken))])
                samples.put(client, half, pool.x[taken], pool.y[taken])
            found.append(sorted(chosen.tolist()))
        return {"classes": found}
