"""Several clients a user: for data whose users are domains, such as photographs and sketches."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.data import Dataset
from pfl_benchmark.datasets.partitioners.base import register
from pfl_benchmark.datasets.partitioners.natural import Natural
from pfl_benchmark.datasets.splits import Split


@register
@dataclass(frozen=True)
class Domains(Natural):
    """Clients are divided evenly among the domains (the data's users); a client has samples of one domain.

    A domain's samples are dealt at random to its clients, equally many to each, give or take one. Where
    clients cannot be divided evenly, the domains with most samples have one more; with fewer clients than
    domains, these have one each, and the others none. `test_share` of a client's samples are held out, in the
    proportions of its classes. Client numbers follow domains.
    """

    name: ClassVar[str] = "domains"
    ignores: ClassVar[tuple[str, ...]] = (*Natural.ignores, "user_pool")
    sizes: ClassVar[str] = "they differ by domain"

    @property
    def slug(self) -> str:
        return f"domains{self.clients}"

    def describe(self) -> str:
        return f"samples of one domain each, {100 * self.test_share:g} % of them for testing"

    def tell(self, facts: Mapping[str, int]) -> str:
        few, many = facts["fewest_clients"], facts["most_clients"]
        each = f"{few:,}" if few == many else f"{few:,} or {many:,}"
        return f"{facts['domains']:,} domains, {each} client{'s' * (many > 1)} each"

    def _too_few(self, found: int, dataset: Dataset) -> str:
        least = max(1, self.least_test)
        return (
            f"{found:,} of the {self.clients:,} clients would have at least {least} test "
            f"sample{'s' * (least > 1)} of {dataset.source} (--test-share {self.test_share:g}): give fewer "
            "--clients, or a larger --test-share"
        )

    def held_out(self, dataset: Dataset) -> np.ndarray:
        counts = super().held_out(dataset)
        counts[self.clients :] = 0  # domains without a client are not drawn
        return counts

    def split(self, dataset: Dataset, rng: np.random.Generator) -> Split:
        self.check(dataset.name, dataset.users is not None)
        assert dataset.users is not None
        owned = np.bincount(dataset.users)
        ranked = np.argsort(-owned, kind="stable")[: int((owned > 0).sum())]
        each, more = divmod(self.clients, len(ranked))
        counts = np.zeros(len(owned), dtype=np.int64)
        counts[ranked] = each
        counts[ranked[:more]] += 1
        # Clients are taken for users; samples of domains without one belong to a last user (`held_out`).
        owners = np.full(len(dataset.users), self.clients, dtype=np.int64)
        first = 0
        for domain in np.flatnonzero(counts):
            rows = rng.permutation(np.flatnonzero(dataset.users == domain))
            for part in np.array_split(rows, counts[domain]):
                owners[part] = first
                first += 1
        kept = dataclasses.replace(dataset, users=owners)
        made = super().split(kept, rng)
        used = counts[counts > 0]
        facts = {"domains": len(used), "fewest_clients": int(used.min()), "most_clients": int(used.max())}
        return dataclasses.replace(made, facts=facts)
