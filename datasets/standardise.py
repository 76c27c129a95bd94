"""Rows of a table as networks read them: measured columns with mean 0 and deviation 1."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from pfl_benchmark.datasets.data import Dataset, Samples
from pfl_benchmark.datasets.splits import Split

__all__ = ["moments", "standardise"]


def standardise(dataset: Dataset, split: Split, numeric: Sequence[int], each: bool) -> tuple[Dataset, Split]:
    """Give the columns `numeric` mean 0 and deviation 1 over training rows; nothing is learned of test rows.

    each: over those of a client alone, for its own rows, else over those of all clients that take part in
        training. A column that is constant there is only shifted, and one that is constant for a client alone
        divided by the deviation over all of them. Rows that a client gets later (drift) are
        scaled by what it had at first.

    Returns:
        The dataset with float32 rows, and the split of it: the same one, or, where a row looks different to
        each client, one in which clients share none.
    """
    columns = np.array(numeric, dtype=np.int64)
    if not each:
        mean, std = _moments(dataset.train.x[_taking_part(split)][:, columns])
        train = Samples(_scaled(dataset.train.x, columns, mean, std), dataset.train.y)
        test = train
        if dataset.test is not dataset.train:
            test = Samples(_scaled(dataset.test.x, columns, mean, std), dataset.test.y)
        return dataclasses.replace(dataset, train=train, test=test), split
    everything = [*enumerate(zip(split.train, split.test, strict=True)), *split.later.items()]
    _, common = _moments(dataset.train.x[_taking_part(split)][:, columns])
    moments = [_moments(dataset.train.x[rows][:, columns], common) for rows in split.train]
    made: list[Samples] = []
    places: list[tuple[np.ndarray, ...]] = []
    for half, samples in enumerate((dataset.train, dataset.test)):
        parts = [_scaled(samples.x[rows[half]], columns, *moments[client]) for client, rows in everything]
        labels = samples.y[np.concatenate([rows[half] for _, rows in everything])]
        made.append(Samples(np.concatenate(parts), labels))
        places.append(_following(parts))
    train, test = made
    (now, later), (now_test, later_test) = (
        (found[: split.clients], found[split.clients :]) for found in places
    )
    changed = dict(zip(split.later, zip(later, later_test, strict=True), strict=True))
    own = dataclasses.replace(split, train=now, test=now_test, later=changed)
    # Whose rows these are the split says; what else the dataset tells of its rows is theirs no longer.
    return dataclasses.replace(dataset, train=train, test=test, users=None, groups=None), own


def moments(
    dataset: Dataset, split: Split, numeric: Sequence[int] = (), client: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation by which samples as the dataset has them become inputs, ``(x - mean) / std``.

    Series: of every channel, over the training samples of all clients that take part in training. Rows: of
    every column in `numeric`, over the same, or over those of `client` alone; 0 and 1 of other columns. The
    deviation of a constant is 1.

    Returns:
        float64 [C, 1] of series, [F] of rows.
    """
    if dataset.kind == "series":
        x = dataset.train.x[_taking_part(split)].astype(np.float64)
        constant = x.max((0, 2)) == x.min((0, 2))
        return x.mean((0, 2))[:, None], np.where(constant, 1.0, x.std((0, 2)))[:, None]
    columns = np.array(numeric, dtype=np.int64)
    mean, std = np.zeros(dataset.train.x.shape[1]), np.ones(dataset.train.x.shape[1])
    mean[columns], std[columns] = _moments(dataset.train.x[_taking_part(split)][:, columns])
    if client is not None:
        own = dataset.train.x[split.train[client]][:, columns]
        mean[columns], std[columns] = _moments(own, std[columns])
    return mean, std


def _taking_part(split: Split) -> np.ndarray:
    """Training samples of all clients that take part in training."""
    return np.concatenate(split.train[: split.clients - split.new])


def _moments(x: np.ndarray, common: np.ndarray | float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of every column, the latter `common` where it is constant."""
    constant = x.max(0) == x.min(0)  # whose computed deviation may be a little above 0
    return np.where(constant, x[0], x.mean(0)), np.where(constant, common, x.std(0))


def _scaled(x: np.ndarray, columns: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    out = x.astype(np.float64)
    out[:, columns] = (out[:, columns] - mean) / std
    return out.astype(np.float32)


def _following(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The places of parts that stand one after the other."""
    ends = np.cumsum([len(part) for part in parts])
    return tuple(np.arange(end - len(part), end) for part, end in zip(parts, ends, strict=True))
