"""Image and text datasets as whole arrays, and their division among the clients of a federation.

    dataset = load("digits")
    spec = SplitSpec(
        "distinct", clients=20, samples_per_client=60, test_samples_per_client=20, classes_per_client=2
    )
    split = make_split(spec, dataset.train.y, dataset.test.y, dataset.classes, np.random.default_rng(0))

A further dataset is one file in `datasets/catalogue/`; nothing else needs to know about it.
"""

from __future__ import annotations

from datasets.data import Dataset, DatasetInfo, Samples
from datasets.loading import load
from datasets.natural import split_by_user
from datasets.registry import DATASETS
from datasets.splits import Partition, Split, SplitSpec, make_split
from datasets.validation import hold_out

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetInfo",
    "Partition",
    "Samples",
    "Split",
    "SplitSpec",
    "hold_out",
    "load",
    "make_split",
    "split_by_user",
]
