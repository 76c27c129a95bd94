"""The natural split: one client per user, with the user's samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.data import Dataset
from pfl_benchmark.datasets.partitioners.base import Partitioner, option, register
from pfl_benchmark.datasets.pools import apportion
from pfl_benchmark.datasets.splits import Split
from pfl_benchmark.errors import UserError


@register
@dataclass(frozen=True)
class Natural(Partitioner):
    """A client is one of the users to whom the samples belong.

    floor(`test_share` · n) of a user's n samples are held out, in the proportions of the user's classes. Of
    the users with at least `least_test` such samples (and one for training) the `user_pool` with most samples
    are kept, ties broken by the users' numbers; of these a random sample of `clients`. Client numbers follow
    users' numbers. `Split.facts` says what number of samples set the pool apart.
    """

    name: ClassVar[str] = "natural"
    by_user: ClassVar[bool] = True
    ignores: ClassVar[tuple[str, ...]] = ("samples_per_client", "test_samples_per_client")
    sizes: ClassVar[str] = "they differ by user"
    user_pool: int = option(
        0, "clients are drawn among so many users, those with the most samples; 0: among all", "[0, inf)"
    )
    test_share: float = option(0.0, "share of a user's samples that is kept for testing", "(0, 1)", 0.1)
    least_test: int = option(0, "users with fewer test samples are left out", "[0, inf)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.user_pool < self.clients and "user_pool" in self.options():
            raise UserError(
                f"--clients is {self.clients:,}, but they are drawn among the {self.user_pool:,} users with "
                "most samples: give fewer clients, a larger --user-pool, or --user-pool 0 for all users"
            )

    @property
    def slug(self) -> str:
        return f"users{self.clients}"

    def describe(self) -> str:
        drawn = f" (of the {self.user_pool} with most samples)" * (self.user_pool > self.clients)
        least = max(1, self.least_test)
        kept = f"{100 * self.test_share:g} % of a user's samples, {least} or more, for testing"
        return f"one user each{drawn}, {kept}"

    def tell(self, facts: Mapping[str, int]) -> str:
        least, at_least = facts["least_samples"], facts["users_with_least_samples"]
        text = f"{facts['users']:,} users: {facts['qualified_users']:,} have enough test samples; "
        if facts["user_pool"] == facts["qualified_users"]:
            return text + f"all of them, with {least} samples or more"
        text += f"the {facts['user_pool']:,} with most samples have {least} or more"
        tied = at_least - facts["user_pool"]
        return text + (f" ({tied} others have {least}, too)" if tied else ", and nobody else does")

    def split(self, dataset: Dataset, rng: np.random.Generator) -> Split:
        self.check(dataset.name, dataset.users is not None)
        owned = np.bincount(_users(dataset))
        held_out = self.held_out(dataset)
        qualified = np.flatnonzero((held_out >= max(1, self.least_test)) & (held_out < owned))
        if len(qualified) < max(self.user_pool, self.clients):
            raise UserError(self._too_few(len(qualified), dataset))
        pool = qualified[np.argsort(-owned[qualified], kind="stable")][: self.user_pool or None]
        chosen = np.sort(rng.permutation(pool)[: self.clients])
        train, test = self.divide(dataset, chosen, held_out, rng)
        least = int(owned[pool].min())
        facts = {
            "users": int((owned > 0).sum()),
            "qualified_users": len(qualified),
            "user_pool": len(pool),
            "least_samples": least,
            "users_with_least_samples": int((owned[qualified] >= least).sum()),
        }
        return Split(tuple(train), tuple(test), facts, dataset.digest)

    def held_out(self, dataset: Dataset) -> np.ndarray:
        """How many samples of each user are for testing, int64 [users]."""
        # 0.29 · 100 is a little below 29
        return np.floor(self.test_share * np.bincount(_users(dataset)) + 1e-9).astype(np.int64)

    def divide(
        self, dataset: Dataset, chosen: np.ndarray, held_out: np.ndarray, rng: np.random.Generator
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The training and the test samples of each chosen user."""
        if dataset.overlap:
            raise UserError(
                f"--partition {self.name} draws test samples at random, and samples of '{dataset.name}' "
                "share measurements with those before and after them; use --partition chronological"
            )
        users, labels = _users(dataset), dataset.train.y
        owned = np.bincount(users)
        counts = np.zeros((len(owned), dataset.classes), dtype=np.int64)
        np.add.at(counts, (users, labels), 1)
        for_test = apportion(counts[chosen], held_out[chosen][:, None], rng)
        shuffled = rng.permutation(len(users))
        by_user = shuffled[np.argsort(users[shuffled], kind="stable")]
        ends = np.cumsum(owned)
        train, test = [], []
        for user, takes in zip(chosen, for_test, strict=True):
            own = by_user[ends[user] - owned[user] : ends[user]]
            parts = [own[labels[own] == label] for label in range(dataset.classes)]
            test.append(np.concatenate([part[:take] for part, take in zip(parts, takes, strict=True)]))
            train.append(np.concatenate([part[take:] for part, take in zip(parts, takes, strict=True)]))
        return train, test

    def _too_few(self, found: int, dataset: Dataset) -> str:
        """What is wrong where only `found` users have enough test samples: most likely the share."""
        users, least = int((np.bincount(_users(dataset)) > 0).sum()), max(1, self.least_test)
        held_out = f"{least} test sample{'s' * (least > 1)} (--test-share {self.test_share:g})"
        have = f"only {found:,} of {users:,} users in {dataset.source} have"
        reason = f"{have if found else f'no user in {dataset.source} has'} at least {held_out}"
        if found == users:
            reason = f"there are only {users:,} users in {dataset.source}"
        if found >= self.clients:
            remedy = "give at most that many, or 0 for all of them"
            return f"--user-pool is {self.user_pool:,}, but {reason}: {remedy}"
        fewer = [f"at most {found:,} --clients (with --user-pool 0)"] * (found > 0)
        remedies = (
            [f"a larger --test-share, such as {share:g}"] if (share := self._larger_share(dataset)) else []
        )
        remedies += ["a smaller --least-test"] * (found < users and least > 1)
        if remedies:
            return f"{reason}, and {self.clients:,} are wanted: give {', or '.join([*remedies, *fewer])}"
        return f"--clients is {self.clients:,}, but {reason}: give {' or '.join(fewer) or 'more data'}"

    def _larger_share(self, dataset: Dataset) -> float:
        """A share for testing at which enough users have test samples; 0: there is none."""
        owned = np.bincount(_users(dataset))
        for share in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5):
            held_out = replace(self, test_share=share).held_out(dataset)
            qualified = (held_out >= max(1, self.least_test)) & (held_out < owned)
            if share > self.test_share and qualified.sum() >= max(self.user_pool, self.clients):
                return share
        return 0.0


def _users(dataset: Dataset) -> np.ndarray:
    assert dataset.users is not None
    return dataset.users
