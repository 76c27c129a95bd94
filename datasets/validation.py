"""A validation split: choosing hyper-parameters without a look at test data."""

from __future__ import annotations

import dataclasses

import numpy as np

from pfl_benchmark.datasets.data import Dataset
from pfl_benchmark.datasets.pools import apportion
from pfl_benchmark.datasets.splits import Split
from pfl_benchmark.errors import Unlucky

__all__ = ["divided", "hold_out"]


def hold_out(dataset: Dataset, split: Split, share: float, rng: np.random.Generator) -> tuple[Dataset, Split]:
    """Put a part of every client's training data in the place of its test data.

    The part is a random one. Where samples stand in the order of time, it is the last of each group, in the
    proportions of the groups' sizes; samples before it that share measurements with it are left out.

    Args:
        share: of a client's training samples, in (0, 1); at least one sample and never all of them.

    Returns:
        The dataset, whose test samples are its training samples now, and a split of it: parts of a client are
        disjoint, and together they are its training part of `split`, but for samples that are left out.

    Raises:
        Unlucky: a client has a single sample, or none that shares nothing with those held out.
    """
    train, held = [], []
    for client, rows in enumerate(split.train):
        if len(rows) < 2:
            raise Unlucky(
                f"client {client} has {len(rows)} training sample, too few to hold some out; drop "
                "--validation, or give clients more samples"
            )
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        kept, out = divided(dataset, rows, count, rng)
        if not len(kept):
            raise Unlucky(
                f"client {client} has no training sample that shares no measurements with the {count:,} held "
                "out; drop --validation, give a smaller one, or clients more samples"
            )
        train.append(kept)
        held.append(out)
    made = dataclasses.replace(split, train=tuple(train), test=tuple(held), digest="")
    return dataclasses.replace(dataset, test=dataset.train), made


def divided(
    dataset: Dataset, rows: np.ndarray, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Some rows of a dataset [n]: those that stay, and `count` ones that are held out, as `hold_out` does."""
    if dataset.groups is None:
        return _random(rows, count, rng)
    return _last(dataset, rows, count, rng)


def _random(rows: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    order = rng.permutation(len(rows))
    return rows[np.sort(order[count:])], rows[np.sort(order[:count])]


def _last(
    dataset: Dataset, rows: np.ndarray, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The first rows of each group, and its last ones, `count` of all groups together."""
    assert dataset.groups is not None
    rows = np.sort(rows)
    _, numbers, sizes = np.unique(dataset.groups[rows], return_inverse=True, return_counts=True)
    counts = apportion(sizes[None], count, rng)[0]
    parts = [dataset.cut(rows[numbers == group], last) for group, last in enumerate(counts)]
    kept, held = zip(*parts, strict=True)
    return np.concatenate(kept), np.concatenate(held)
