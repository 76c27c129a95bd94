"""The arithmetic of splits: who gets how many images of which class, and which images these are.

Everything is a matrix of counts [K clients, C classes] until `ClassPools.take` turns it into images.
"""

from __future__ import annotations

import math

import numpy as np

from benchmark.errors import UserError

__all__ = ["ClassPools", "apportion", "deal_classes", "dirichlet_counts", "repair_duplicates"]

_GROUP = 10  # clients that FedDF divides one part of the data among
_TRIES = 1000


class ClassPools:
    """The images of each class in a random order."""

    def __init__(self, labels: np.ndarray, classes: int, rng: np.random.Generator) -> None:
        """Shuffle the images with `labels` int64 [N], values 0..classes-1."""
        order = rng.permutation(len(labels))
        self._images = order[np.argsort(labels[order], kind="stable")]
        self.sizes = np.bincount(labels, minlength=classes)
        self._first = np.cumsum(self.sizes) - self.sizes

    def take(self, counts: np.ndarray) -> list[np.ndarray]:
        """Return for each client k an int64 array with counts[k, c] images of every class c.

        Clients take consecutive slices of a class's pool and go on from its beginning after its end. So they
        are disjoint where the pool suffices; elsewhere every image is used equally often, give or take one,
        and never twice by one client unless its count is larger than the pool.
        """
        starts = np.cumsum(counts, axis=0) - counts
        client, label = np.nonzero(counts)
        length = counts[client, label]
        within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        label_of = np.repeat(label, length)
        position = (np.repeat(starts[client, label], length) + within) % self.sizes[label_of]
        images = self._images[self._first[label_of] + position]
        return np.split(images, np.cumsum(counts.sum(axis=1))[:-1])


def apportion(weights: np.ndarray, total: int | np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Divide `total` (or one a row, [K, 1]) among the columns in proportion to integer `weights` [K, C].

    Largest remainders, ties broken at random, in exact integer arithmetic; int64 [K, C]. Every row of
    `weights` must have a positive sum; a weight of 0 gets 0.
    """
    sums = weights.sum(axis=1, keepdims=True)
    counts, remainders = np.divmod(weights * total, sums)
    missing = total - counts.sum(axis=1, keepdims=True)
    order = np.lexsort((rng.random(weights.shape), -remainders), axis=1)
    rank = np.argsort(order, axis=1)
    return counts + (rank < missing)


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


def dirichlet_counts(
    labels: np.ndarray, classes: int, clients: int, mean: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Return class counts int64 [clients, classes] by FedDF's `build_non_iid_by_dirichlet`.

    `clients * mean` random images are divided into groups of 10 clients (the last may be smaller). In a group
    every class is cut by p ~ Dir(alpha), where clients that already hold `mean` images get nothing more, and
    the whole group is drawn again until everybody has at least half of `mean`.

    Raises UserError where 1,000 tries do not reach that.
    """
    chosen = labels[rng.permutation(len(labels))[: clients * mean]]
    groups = math.ceil(clients / _GROUP)
    cells = np.arange(len(chosen)) // (_GROUP * mean) * classes + chosen
    available = np.bincount(cells, minlength=groups * classes).reshape(groups, classes)
    # The last group may have seats without a client.
    taken = (np.arange(groups * _GROUP) < clients).reshape(groups, _GROUP)
    least = max(1, int(0.5 * mean))
    counts = np.zeros((groups, _GROUP, classes), dtype=np.int64)
    todo = np.arange(groups)
    for _ in range(_TRIES):
        drawn = _divide_groups(available[todo], taken[todo], mean, alpha, rng)
        done = ((drawn.sum(axis=2) >= least) | ~taken[todo]).all(axis=1)
        counts[todo[done]] = drawn[done]
        todo = todo[~done]
        if len(todo) == 0:
            return counts[taken]
    raise UserError(
        f"dirichlet_alpha {alpha:g} left some client with fewer than {least} training images "
        f"in each of {_TRIES} tries: use a larger alpha or more samples per client"
    )


def _divide_groups(
    available: np.ndarray, taken: np.ndarray, mean: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Try to divide available[g, c] images among the seats taken[g]: int64 [G, seats, C], 0 if failed."""
    counts = np.zeros((*taken.shape, available.shape[1]), dtype=np.int64)
    held = np.zeros(taken.shape, dtype=np.int64)
    failed = np.zeros(len(taken), dtype=bool)
    for label, images in enumerate(available.T):
        # Renormalised below: a part of a Dirichlet vector is one itself, so empty seats change nothing.
        share = rng.dirichlet(np.full(taken.shape[1], alpha), size=len(taken)) * (taken & (held < mean))
        ends = np.cumsum(share, axis=1)
        # Where all mass is on full clients FedDF's code divides by zero; a tiny alpha gives NaN.
        dealt = ends[:, -1:] > 0
        failed |= ~dealt[:, 0] & (images > 0)
        ends = np.divide(ends, ends[:, -1:], out=np.zeros_like(ends), where=dealt)
        counts[:, :, label] = np.diff((ends * images[:, None]).astype(np.int64), axis=1, prepend=0)
        held += counts[:, :, label]
    counts[failed] = 0
    return counts
