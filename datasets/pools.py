"""The arithmetic that partitioners have in common: from counts of images to the images.

Everything is a matrix of counts [K clients, C classes] until `ClassPools.take` turns it into images.
"""

from __future__ import annotations

import numpy as np

__all__ = ["ClassPools", "apportion"]


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
