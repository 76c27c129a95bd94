"""SVHN's cropped digits as Stanford publishes them: MATLAB files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from pfl_benchmark.datasets.layouts.base import Files, Half, require, unreadable

__all__ = ["MatFiles"]


@dataclass(frozen=True)
class MatFiles:
    """`train_32x32.mat` and `test_32x32.mat`: X uint8 [H, W, C, N], y [N, 1] with 10 for the digit 0."""

    folder: str
    title: ClassVar[str] = "SVHN's .mat files"

    def find(self, root: Path) -> Files | None:
        """Return the files below `root`, None where there is none; UserError where one is missing."""
        train, test = (root / self.folder / f"{half}_32x32.mat" for half in ("train", "test"))
        return require(Files((train,), (test,)), self.title)

    def read(
        self, paths: Sequence[Path], shape: tuple[int, ...], half: Half
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return images uint8 [N, *shape] and labels int64 [N]; UserError for a damaged file."""
        from scipy.io import loadmat

        (path,) = paths
        try:
            content = loadmat(path, variable_names=["X", "y"])
            x, y = content["X"], content["y"].astype(np.int64).ravel()
            if x.dtype != np.uint8 or x.ndim != 4:
                raise ValueError(f"X is {x.dtype} {list(x.shape)}")
        except Exception as error:  # whatever a damaged file brings about
            raise unreadable(path, "a MATLAB file with X and y", error) from error
        if x.shape[3] != len(y):
            raise unreadable(path, "as many labels as images", f"it holds {len(y)} and {x.shape[3]}")
        return np.ascontiguousarray(x.transpose(3, 2, 0, 1)), np.where(y == 10, 0, y)
