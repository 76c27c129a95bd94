"""Rows of a table as networks read them: measured columns with mean 0 and deviation 1."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from pfl_benchmark.datasets.data import Dataset, Samples
from pfl_benchmark.datasets.splits import Split

__all__ = ["standardise"]


def standardise(dataset: Dataset, split: Split, numeric: Sequence[int], each: bool) -> tuple[Dataset, Split]:
    """Give the columns `numeric` mean 0 and deviation 1 over training rows; nothing is learned of test rows.

    each: over those of a client alone, for its own rows, else over those of all clients that take part in
        training. A column that is constant there is only shifted.

    Returns:
        The dataset with float32 rows, and the split of it: the same one, or, where a row looks different to
        each client, one in which clients share none.
    """
    columns = np.array(numeric, dtype=np.int64)
    if not each:
        seen = np.concatenate(split.train[: split.clients - split.new])
        mean, std = _moments(dataset.train.x[seen][:, columns])
        train = Samples(_scaled(dataset.train.x, columns, mean, std), dataset.train.y)
        test = train
        if dataset.test is not dataset.train:
            test = Samples(_scaled(dataset.test.x, columns, mean, std), dataset.test.y)
        return dataclasses.replace(dataset, train=train, test=test), split
    parts: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    for client in range(split.clients):
        mean, std = _moments(dataset.train.x[split.train[client]][:, columns])
        for half, rows in (("train", split.train[client]), ("test", split.test[client])):
            parts[half].append(_scaled(getattr(dataset, half).x[rows], columns, mean, std))
    train, test = (
        Samples(np.concatenate(parts[half]), getattr(dataset, half).y[np.concatenate(getattr(split, half))])
        for half in ("train", "test")
    )
    own = dataclasses.replace(split, train=_following(parts["train"]), test=_following(parts["test"]))
    # Whose rows these are the split says; what else the dataset tells of its rows is theirs no longer.
    return dataclasses.replace(dataset, train=train, test=test, users=None, groups=None), own


def _moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of every column, the latter 1 where it is constant."""
    constant = x.max(0) == x.min(0)  # whose computed deviation may be a little above 0
    return np.where(constant, x[0], x.mean(0)), np.where(constant, 1.0, x.std(0))


def _scaled(x: np.ndarray, columns: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    out = x.astype(np.float64)
    out[:, columns] = (out[:, columns] - mean) / std
    return out.astype(np.float32)


def _following(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The places of parts that stand one after the other."""
    ends = np.cumsum([len(part) for part in parts])
    return tuple(np.arange(end - len(part), end) for part, end in zip(parts, ends, strict=True))
