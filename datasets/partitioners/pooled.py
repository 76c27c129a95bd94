"""PFLlib's practical split: all samples together by a Dirichlet law, a part of each client's for testing."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.data import Dataset, Samples
from pfl_benchmark.datasets.partitioners.base import Partitioner, register
from pfl_benchmark.datasets.partitioners.dirichlet import Dirichlet
from pfl_benchmark.datasets.partitioners.natural import Natural
from pfl_benchmark.datasets.splits import Split
from pfl_benchmark.errors import Unlucky, UserError, flag

__all__ = ["Pooled"]

_LEAST = 40  # samples of a client: PFLlib's batch of 10 over its quarter for testing
_TRIES = 1000


@register
@dataclass(frozen=True)
class Pooled(Partitioner):
    """Official training and test samples together by Dir(α); a part of each client's is for testing.

    As PFLlib's `noniid - dir` (dataset/utils/dataset_utils.py): each class in turn is cut by shares drawn
    from Dir(α), where clients that hold their equal part of all samples get nothing more; all is drawn
    again until everybody has 40 samples (or half of the equal part, if that is less). A random
    ⌊(1 − `test_share`) n⌋ of a client's n samples are for training; there it is three quarters. Fewer
    `samples_per_client` than there are take a random part of all samples, which PFLlib does not.
    """

    name: ClassVar[str] = "pooled"
    ignores: ClassVar[tuple[str, ...]] = ("test_samples_per_client",)
    sizes: ClassVar[str] = ""
    dirichlet: float = Dirichlet.options()["dirichlet"]  # type: ignore[assignment]
    test_share: float = Natural.options()["test_share"]  # type: ignore[assignment]

    @property
    def slug(self) -> str:
        return f"pooled{self.dirichlet:g}-{self.test_share:g}".replace("-", "")

    def describe(self) -> str:
        return (
            f"training and test images together by Dirichlet {self.dirichlet:g}, "
            f"{100 * self.test_share:g} % of a client's for testing, "
            f"{self.samples_per_client} training images each on average"
        )

    def arranged(self, dataset: Dataset) -> Dataset:
        if dataset.test is dataset.train:
            return dataset
        x, y = (np.concatenate([getattr(part, of) for part in (dataset.train, dataset.test)]) for of in "xy")
        both = Samples(x, y)
        return dataclasses.replace(dataset, train=both, test=both)

    def split(self, dataset: Dataset, rng: np.random.Generator) -> Split:
        self.check(dataset.name, dataset.users is not None)
        labels = self.arranged(dataset).train.y
        wanted = round(self.clients * self.samples_per_client / (1 - self.test_share))
        if wanted > len(labels):
            most = math.floor(len(labels) * (1 - self.test_share) / self.clients)
            raise UserError(
                f"{flag('samples_per_client')} is {self.samples_per_client:,}, but there are "
                f"{len(labels):,} {dataset.unit}, of which {100 * self.test_share:g} % are for testing, for "
                f"{self.clients:,} clients: "
                + (f"give at most {most:,}" if most else "use fewer clients or another dataset")
            )
        if wanted < 2 * self.clients:
            raise UserError(
                f"{flag('samples_per_client')} is {self.samples_per_client:,}, so that there are {wanted:,} "
                f"{dataset.unit} for {self.clients:,} clients, and each needs one for training and one for "
                "testing: give more"
            )
        chosen = rng.permutation(len(labels))[:wanted]
        train, test = [], []
        for rows in self._dealt(chosen, labels[chosen], dataset.classes, rng):
            order = rng.permutation(rows)
            count = min(max(1, math.floor((1 - self.test_share) * len(rows) + 1e-9)), len(rows) - 1)
            train.append(np.sort(order[:count]))
            test.append(np.sort(order[count:]))
        return Split(tuple(train), tuple(test))

    def _dealt(
        self, chosen: np.ndarray, labels: np.ndarray, classes: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        """The clients' samples, of `chosen` ones [n] with `labels` [n]."""
        full = len(chosen) / self.clients
        least = max(2, min(_LEAST, int(full / 2)))
        for _ in range(_TRIES):
            owner, held = np.empty(len(chosen), dtype=np.int64), np.zeros(self.clients, dtype=np.int64)
            for label in range(classes):
                rows = np.flatnonzero(labels == label)
                shares = rng.dirichlet(np.full(self.clients, self.dirichlet)) * (held < full)
                if not shares.sum() > 0:  # all mass is on full clients, or α so small that there is none
                    break
                ends = (np.cumsum(shares / shares.sum()) * len(rows)).astype(np.int64)
                ends[-1] = len(rows)
                counts = np.diff(ends, prepend=0)
                owner[rng.permutation(rows)] = np.repeat(np.arange(self.clients), counts)
                held += counts
            else:
                if held.min() >= least:
                    return [chosen[owner == client] for client in range(self.clients)]
        raise Unlucky(
            f"--dirichlet {self.dirichlet:g} left some client with fewer than {least} images in each of "
            f"{_TRIES} tries: use a larger one, fewer --clients, or more --samples-per-client"
        )
