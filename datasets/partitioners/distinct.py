"""Every client has S different classes, and equally many samples of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.partitioners.base import ByLabels, Dealt, option, register
from pfl_benchmark.datasets.pools import ClassPools, apportion
from pfl_benchmark.errors import UserError

__all__ = ["Distinct", "deal_classes", "repair_duplicates"]


@register
@dataclass(frozen=True)
class Distinct(ByLabels):
    """S different classes for every client, and equally many samples of each."""

    name: ClassVar[str] = "distinct"
    classes_per_client: int = option(2, "classes per client S", "[1, inf)", always=True)

    @property
    def slug(self) -> str:
        return f"s{self.classes_per_client}"

    def describe(self) -> str:
        plural = "es" * (self.classes_per_client > 1)
        return f"{self.classes_per_client} class{plural} and {self.samples_per_client} training images each"

    def deal(self, labels: np.ndarray, pools: ClassPools, rng: np.random.Generator) -> Dealt:
        classes = len(pools.sizes)
        hands = deal_classes(self.clients, self.classes_per_client, classes, rng)
        dealt = count_classes(repair_duplicates(hands, classes, rng), classes)
        return pools.take(apportion(dealt, self.samples_per_client, rng)), dealt

    def room(self, train: np.ndarray, test: np.ndarray) -> tuple[tuple[int, str], tuple[int, str]]:
        per_client = self.classes_per_client
        (samples, reason), (tested, test_reason) = self.room_by_classes(train, test)
        if self.samples_per_client < per_client:
            raise UserError(
                f"--samples-per-client is {self.samples_per_client}, fewer than the {per_client} classes "
                "per client: give at least one image for each"
            )
        untested = int((test == 0).sum())  # so many of a client's classes may have no test samples
        return (samples, reason), (tested * max(1, per_client - untested), test_reason)

    def room_by_classes(self, train: np.ndarray, test: np.ndarray) -> tuple[tuple[int, str], tuple[int, str]]:
        """`room` where each of the S classes a client is dealt may be the same one."""
        per_client, classes, smallest = self.classes_per_client, len(train), int(train.min())
        if per_client > classes:
            raise UserError(
                f"--classes-per-client is {per_client}, more than there are: give at most {classes}"
            )
        uses = math.ceil(self.clients * per_client / classes)
        reason = f"the smallest class has {smallest:,} training images for up to {uses:,} clients"
        return (per_client * (smallest // uses), reason), super().room(train, test)[1]


def count_classes(hands: np.ndarray, classes: int) -> np.ndarray:
    """How often each client was dealt each class, int64 [K, C], from its hand of classes, int64 [K, S]."""
    dealt = np.zeros((len(hands), classes), dtype=np.int64)
    np.add.at(dealt, (np.arange(len(hands))[:, None], hands), 1)
    return dealt


def deal_classes(clients: int, per_client: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Deal classes at random, int64 [clients, per_client]; a client may get a class more than once.

    Each class is dealt floor or ceil(clients * per_client / classes) times.
    """
    floor, extra = divmod(clients * per_client, classes)
    uses = floor + (rng.permutation(classes) < extra)
    return rng.permutation(np.repeat(np.arange(classes), uses)).reshape(clients, per_client)


def repair_duplicates(hands: np.ndarray, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Return the deal `hands` [K, S], S <= classes, with random swaps until no client has a class twice.

    This always ends. A class dealt at most K times, twice of them to one client, is missing from another;
    that one holds a class which the first lacks, or has a duplicate itself. Swapping either for the surplus
    class raises the number of different (client, class) pairs, which is bounded.
    """
    hands = hands.copy()
    held = np.zeros((classes, len(hands)), dtype=np.int64)
    np.add.at(held, (hands.T, np.arange(len(hands))), 1)
    for client in np.flatnonzero((held > 1).any(axis=0)):
        for slot in range(hands.shape[1]):
            while held[surplus := hands[client, slot], client] > 1:
                other = rng.choice(np.flatnonzero(held[surplus] == 0))
                offered = hands[other]
                useful = np.flatnonzero(held[offered, client] == 0)
                if len(useful) == 0:
                    useful = np.flatnonzero(held[offered, other] > 1)
                swap = rng.choice(useful)
                wanted = hands[other, swap]
                hands[client, slot], hands[other, swap] = wanted, surplus
                held[surplus, client] -= 1
                held[surplus, other] += 1
                held[wanted, client] += 1
                held[wanted, other] -= 1
    return hands
