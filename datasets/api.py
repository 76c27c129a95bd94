"""Image and text datasets as whole arrays, and their division among the clients of a federation.

    dataset = load("digits")
    partitioner = PARTITIONERS["shards"](
        clients=20, samples_per_client=60, test_samples_per_client=20, classes_per_client=2
    )
    split = partitioner.split(dataset, np.random.default_rng(0))

A further dataset is one file in `datasets/catalogue/`, a further partitioner one in `datasets/partitioners/`,
a further shift one in `datasets/shifts/`; nothing else needs to know about it.
"""

from __future__ import annotations

from pfl_benchmark.datasets.data import Dataset, DatasetInfo, Samples
from pfl_benchmark.datasets.loading import load
from pfl_benchmark.datasets.partitioners import PARTITIONERS, Partitioner
from pfl_benchmark.datasets.registry import DATASETS
from pfl_benchmark.datasets.shifts import SHIFTS, Shifted, apply_shifts
from pfl_benchmark.datasets.splits import Split
from pfl_benchmark.datasets.validation import hold_out

__all__ = [
    "DATASETS",
    "PARTITIONERS",
    "SHIFTS",
    "Dataset",
    "DatasetInfo",
    "Partitioner",
    "Samples",
    "Shifted",
    "Split",
    "apply_shifts",
    "hold_out",
    "load",
]
