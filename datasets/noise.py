"""Datasets of noise: right in shape and kind, for what depends on nothing else."""

from __future__ import annotations

import numpy as np

from pfl_benchmark.datasets.data import Dataset, Samples
from pfl_benchmark.datasets.registry import DATASETS

__all__ = ["noise"]

_ROWS = 1_000  # of the word vectors


def noise(name: str, count: int, embedding: int = 0) -> Dataset:
    """Return `count` random samples, as training and as test set, in the form of the dataset `name`.

    Classes take turns. Texts are of full length, with word vectors of width `embedding`. Samples that have
    users belong to a single one.
    """
    info, rng = DATASETS[name], np.random.default_rng(0)
    labels = np.arange(count, dtype=np.int64) % info.classes
    shape = (count, *info.shape)
    vectors = None
    if info.kind == "images":
        x = rng.integers(0, 256, shape, dtype=np.uint8)
    elif info.kind == "words":
        x = rng.integers(1, _ROWS, shape, dtype=np.int32)
        vectors = rng.normal(size=(_ROWS, embedding)).astype(np.float32)
    elif info.kind == "characters":
        x = rng.integers(0, info.symbols, shape, dtype=np.uint8)
    else:
        x = rng.normal(size=shape).astype(np.float32)
    users = np.zeros(count, dtype=np.int64) if info.by_users else None
    part = Samples(x, labels)
    return info.holding(part, part, "noise", vectors, users)
