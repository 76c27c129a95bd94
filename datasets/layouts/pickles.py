"""The Python version of CIFAR as Toronto publishes it and torchvision unpacks it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pfl_benchmark.datasets.layouts.base import Files, Half, require, unreadable

__all__ = ["CifarPickles"]


@dataclass(frozen=True)
class CifarPickles:
    """Pickled batches: `data` uint8 [n, 3072] and a list of labels under the key `labels`."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    labels: str
    title: ClassVar[str] = "torchvision's CIFAR files"

    def find(self, root: Path) -> Files | None:
        """Return the files below `root`, None where there is none; UserError where some are missing."""
        folder = root / self.folder
        halves = (tuple(folder / name for name in half) for half in (self.train, self.test))
        return require(Files(*halves), self.title)

    def read(
        self, paths: Sequence[Path], shape: tuple[int, ...], half: Half
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return images uint8 [N, *shape] and labels int64 [N]; UserError for a damaged file."""
        images, labels = [], []
        for path in paths:
            try:
                with path.open("rb") as file:
                    batch = _ArrayUnpickler(file, encoding="latin1").load()
                x, y = np.asarray(batch["data"]), np.asarray(batch[self.labels])
                if x.dtype != np.uint8 or y.dtype.kind not in "iu" or y.ndim != 1:
                    raise ValueError(f"it holds {x.dtype} and {y.dtype}")
                x, y = x.reshape(-1, *shape), y.astype(np.int64)
            except Exception as error:  # a damaged pickle can raise anything
                raise unreadable(
                    path, f"a pickled CIFAR batch with 'data' and '{self.labels}'", error
                ) from error
            if len(x) != len(y):
                raise unreadable(path, "as many labels as images", f"it holds {len(y)} and {len(x)}")
            images.append(x)
            labels.append(y)
        return np.concatenate(images), np.concatenate(labels)


class _ArrayUnpickler(pickle.Unpickler):
    """Reads NumPy arrays and plain containers only: an ordinary unpickler would run a file's code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(np, name)
        if name == "_reconstruct" and module in {"numpy.core.multiarray", "numpy._core.multiarray"}:
            return np.empty(0).__reduce__()[0]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")
