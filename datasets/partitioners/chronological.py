"""The natural split in the order of time: clients train on what came first, and are tested on the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.data import Dataset
from pfl_benchmark.datasets.partitioners.base import register
from pfl_benchmark.datasets.partitioners.natural import Natural
from pfl_benchmark.errors import Unlucky, UserError


@register
@dataclass(frozen=True)
class Chronological(Natural):
    """One client per user, as `natural`; tested on the last part of each of the user's recordings.

    The last floor(`test_share` · n) of the n samples of a group (`Dataset.groups`) are held out; samples
    before them that share measurements with them are left out. Of what remains a client has at most
    `samples_per_client` training and `test_samples_per_client` test samples, at even distances in time.
    """

    name: ClassVar[str] = "chronological"
    ignores: ClassVar[tuple[str, ...]] = ()
    sizes: ClassVar[str] = "at most; they differ by user"

    @property
    def slug(self) -> str:
        return f"chronological{self.clients}"

    def describe(self) -> str:
        drawn = f" (of the {self.user_pool} with most samples)" * (self.user_pool > self.clients)
        kept = f"the last {100 * self.test_share:g} % in time for testing"
        return f"one user each{drawn}, at most {self.samples_per_client} training samples, {kept}"

    def held_out(self, dataset: Dataset) -> np.ndarray:
        owners, counts = [], []
        for user, rows in _groups(dataset):
            owners.append(user)
            counts.append(self._last(rows))
        return np.bincount(owners, weights=counts).astype(np.int64)

    def divide(
        self, dataset: Dataset, chosen: np.ndarray, held_out: np.ndarray, rng: np.random.Generator
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        first: dict[int, list[np.ndarray]] = {int(user): [] for user in chosen}
        last: dict[int, list[np.ndarray]] = {int(user): [] for user in chosen}
        for user, rows in _groups(dataset):
            if user in first:
                before, after = dataset.cut(rows, self._last(rows))
                first[user].append(before)
                last[user].append(after)
        train = [_spread(np.concatenate(parts), self.samples_per_client) for parts in first.values()]
        test = [_spread(np.concatenate(parts), self.test_samples_per_client) for parts in last.values()]
        for user, own in zip(first, train, strict=True):
            if not len(own):
                raise Unlucky(
                    f"user {user} of '{dataset.name}' has no training sample left before its test samples; "
                    "give a smaller --test-share"
                )
        return train, test

    def _last(self, rows: np.ndarray) -> int:
        """Number of a group's samples that are for testing."""
        return int(np.floor(self.test_share * len(rows) + 1e-9))


def _groups(dataset: Dataset) -> Iterator[tuple[int, np.ndarray]]:
    """Each group's user and samples, in the order of time.

    Raises UserError where the order is not known.
    """
    if dataset.groups is None:
        raise UserError(
            f"--partition chronological needs samples in the order of time, and those of '{dataset.name}' "
            "have none; use --partition natural"
        )
    assert dataset.users is not None
    order = np.argsort(dataset.groups, kind="stable")
    starts = np.flatnonzero(np.diff(dataset.groups[order])) + 1
    for rows in np.split(order, starts):
        yield int(dataset.users[rows[0]]), rows


def _spread(rows: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the rows, at even distances."""
    if len(rows) <= most:
        return rows
    return rows[(2 * np.arange(most) + 1) * len(rows) // (2 * most)]
