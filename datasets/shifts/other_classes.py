"""Other classes than a client had: what may happen to its data in the course of a run (`drift`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pfl_benchmark.datasets.shifts.base import Draw, Shift, register
from pfl_benchmark.datasets.shifts.samples import HALVES, ClientSamples
from pfl_benchmark.errors import UserError


@register
@dataclass(frozen=True)
class OtherClasses(Shift):
    """Clients get as many samples of classes that they do not have, the same in training and in testing.

    Those who have all classes keep what they have.
    """

    kind: ClassVar[str] = "classes"
    name: ClassVar[str] = "other"
    place: ClassVar[int] = 15
    replaces: ClassVar[bool] = True

    def describe(self) -> str:
        return "other classes"

    def apply(self, samples: ClientSamples, draw: Draw) -> Mapping[str, Any]:
        dataset, found, changed = samples.dataset, [], False
        pools = {half: samples.pool(half) for half in HALVES}
        labels = {half: getattr(dataset, half).y[rows] for half, rows in pools.items()}
        known = np.intersect1d(labels["train"], labels["test"])
        for client, number in enumerate(samples.numbers):
            rng = draw("classes", number)
            had = np.unique(samples.get(client, "train")[1])
            free = np.setdiff1d(known, had)
            if not len(free):  # it has all of them
                found.append(sorted(had.tolist()))
                continue
            chosen, changed = rng.permutation(free)[: len(had)], True
            for half in HALVES:
                source, size = getattr(dataset, half), len(samples.get(client, half)[1])
                rows = pools[half][np.isin(labels[half], chosen)]
                taken = rng.permutation(rows)[:size]
                if len(taken) < size:  # a small dataset: some twice
                    taken = np.concatenate([taken, rng.choice(rows, size - len(taken))])
                samples.put(client, half, source.x[taken], source.y[taken])
            found.append(sorted(chosen.tolist()))
        if not changed:
            raise UserError(
                f"--shift {self.key()}: these clients have all classes, so there are no others; choose a "
                "--partition that gives clients some of the classes, such as shards, or another shift"
            )
        return {"classes": found}
