"""Smartphone-Based Recognition of Human Activities and Postural Transitions (Reyes-Ortiz et al., 2015).

UCI Machine Learning Repository, CC BY 4.0. Thirty people wore a phone at the waist: acceleration in g and
rotation in rad/s, 50 times a second, labelled samples only.
"""

from __future__ import annotations

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.people.hapt import STEPS, Recordings
from pfl_benchmark.datasets.people.hapt_files import CHANNELS

__all__ = ["INFO"]

INFO = DatasetInfo(
    name="hapt",
    title="Activities of thirty people (HAPT)",
    class_names=("walking", "upstairs", "downstairs", "sitting", "standing", "lying"),
    shape=(len(CHANNELS), STEPS),
    sizes=(10_411, 0),
    mean=(),
    std=(),
    reader=Recordings(),
    kind="series",
    origin="files",
    licence="CC BY 4.0 (UCI)",
    citation=(
        'J.-L. Reyes-Ortiz et al., "Transition-Aware Human Activity Recognition Using Smartphones", '
        "Neurocomputing 171, 2016"
    ),
    network="cnn-series",
)
