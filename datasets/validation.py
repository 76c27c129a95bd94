"""A validation split: choosing hyper-parameters without a look at test data."""

from __future__ import annotations

import dataclasses

import numpy as np

from benchmark.errors import UserError
from datasets.data import Dataset
from datasets.splits import Split

__all__ = ["hold_out"]


def hold_out(dataset: Dataset, split: Split, share: float, rng: np.random.Generator) -> tuple[Dataset, Split]:
    """Put a part of every client's training data in the place of its test data.

    Args:
        share: of a client's training samples, in (0, 1); at least one sample and never all of them.

    Returns:
        The dataset, whose test samples are its training samples now, and a split of it: parts of a client are
        disjoint, and together they are its training part of `split`.

    Raises:
        UserError: a client has a single sample.
    """
    train, held = [], []
    for client, rows in enumerate(split.train):
        if len(rows) < 2:
            raise UserError(
                f"client {client} has {len(rows)} training sample, too few to hold some out; drop "
                "--validation or give more --samples-per-client"
            )
        order = rng.permutation(len(rows))
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        held.append(rows[np.sort(order[:count])])
        train.append(rows[np.sort(order[count:])])
    return dataclasses.replace(dataset, test=dataset.train), Split(tuple(train), tuple(held), new=split.new)
