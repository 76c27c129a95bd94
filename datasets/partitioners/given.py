"""The data's own split: who has what, and what is for testing, is in the files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.data import Dataset
from pfl_benchmark.datasets.partitioners.base import Partitioner, register
from pfl_benchmark.datasets.splits import Split
from pfl_benchmark.errors import UserError


@register
@dataclass(frozen=True)
class Given(Partitioner):
    """A client is a user, with the training and the test samples that the data give the user.

    Users without one of either are left out; of the others a random sample of `clients`, whose numbers follow
    users' numbers.
    """

    name: ClassVar[str] = "given"
    by_user: ClassVar[bool] = True
    ignores: ClassVar[tuple[str, ...]] = ("samples_per_client", "test_samples_per_client")
    sizes: ClassVar[str] = "they are those of the data"

    @property
    def slug(self) -> str:
        return f"given{self.clients}"

    def describe(self) -> str:
        return "one user each, training and test samples as the data have them"

    def split(self, dataset: Dataset, rng: np.random.Generator) -> Split:
        self.check(dataset.name, dataset.users is not None)
        if dataset.held_out is None:
            raise UserError(
                f"--partition given needs data that say what is for testing, and '{dataset.name}' does not; "
                "use --partition natural"
            )
        assert dataset.users is not None
        order = np.argsort(dataset.users, kind="stable")
        starts = np.searchsorted(dataset.users[order], np.arange(1, int(dataset.users.max()) + 1))
        parts = [
            (rows[~dataset.held_out[rows]], rows[dataset.held_out[rows]]) for rows in np.split(order, starts)
        ]
        able = np.array([user for user, halves in enumerate(parts) if all(map(len, halves))], dtype=np.int64)
        if len(able) < self.clients:
            raise UserError(
                f"--clients is {self.clients:,}, but {len(able):,} users of '{dataset.name}' have training "
                f"and test samples: give at most {len(able):,}"
            )
        chosen = np.sort(rng.permutation(able)[: self.clients])
        train, test = zip(*(parts[user] for user in chosen), strict=True)
        return Split(train, test, digest=dataset.digest)
