"""Phones at thirty people's waists: windows of acceleration and rotation, by activity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pfl_benchmark.datasets import cache
from pfl_benchmark.datasets.data import Dataset, DatasetInfo, Samples
from pfl_benchmark.datasets.layouts.base import unreadable
from pfl_benchmark.datasets.people.hapt_files import CHANNELS, find_recordings, read_recordings

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CHANNELS", "STEPS", "Recordings", "windows"]

STEPS = 128  # of a window: 2.56 s; the next one begins after half of them, as in the official features
_ARRAYS = ("x", "y", "users", "groups")


@dataclass(frozen=True)
class Recordings:
    """A `datasets.data.Reader`: a parquet file or the package's archive in `hapt/`, below a data folder."""

    builtin: ClassVar[bool] = False

    def load(self, info: DatasetInfo, roots: Sequence[Path], download: bool, embedding: int) -> Dataset:
        """Return the windows of the classes of `info`, the first of the file's labels.

        A group is an activity of a recording. (A recording ends with stairs: its last part would hold no
        other activity.)

        Raises UserError where the file is missing or damaged.
        """
        path = find_recordings(info.name, roots)
        arrays = cache.cached(
            f"{info.name}-{info.classes}", (path,), path.parent, lambda: _decode(path, info), _ARRAYS
        )
        samples = Samples(arrays["x"], arrays["y"])
        users, groups = arrays["users"], arrays["groups"]
        source = str(path) + info.partial(len(samples))
        return info.holding(samples, samples, source, users=users, groups=groups, overlap=1)


def _decode(path: Path, info: DatasetInfo) -> dict[str, np.ndarray]:
    table = read_recordings(path)
    arrays = windows(table[table["label"] <= info.classes])
    without = sorted(set(table["subject"]) - set(arrays["subjects"].tolist()))
    if without:
        raise unreadable(
            path, f"recordings of {STEPS} steps or more of everybody", f"subject {without[0]} has none"
        )
    return {name: arrays[name] for name in _ARRAYS}


def windows(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Cut recordings into windows.

    A window lies inside of one recording and label and skips no sample. Rows are in the order of time.

    Returns:
        x float32 [N, 6, `STEPS`], y int64 [N] from 0, users int64 [N] from 0, groups int64 [N] (a recording
        and label each), and subjects, the numbers of the users in the file.
    """
    marks = table[["subject", "experiment", "label"]].to_numpy()
    steps = np.diff(table["sequence"].to_numpy())
    breaks = np.flatnonzero((steps != 1) | (np.diff(marks, axis=0) != 0).any(1)) + 1
    starts: list[int] = []
    for begin, end in zip([0, *breaks], [*breaks, len(table)], strict=True):
        starts.extend(range(begin, end - STEPS + 1, STEPS // 2))
    first = np.array(starts, dtype=np.int64)
    values = table[list(CHANNELS)].to_numpy(dtype=np.float32)
    inside = first[:, None] + np.arange(STEPS)
    subjects, users = np.unique(marks[first, 0], return_inverse=True)
    return {
        "x": np.ascontiguousarray(values[inside].transpose(0, 2, 1)),
        "y": marks[first, 2].astype(np.int64) - 1,
        "users": users.astype(np.int64),
        "groups": np.unique(marks[first], axis=0, return_inverse=True)[1].astype(np.int64),
        "subjects": subjects,
    }
