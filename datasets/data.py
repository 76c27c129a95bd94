"""What a dataset is: arrays in memory, and what is known about it before any file is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from datasets.download import Download
from datasets.layouts import Layout

__all__ = ["Dataset", "DatasetInfo", "Samples"]


@dataclass(frozen=True, eq=False)
class Samples:
    """Images and their classes.

    x: uint8 [N, C, H, W], values 0..255.
    y: int64 [N], values 0..classes-1.
    """

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset in memory.

    mean, std: per channel, of x / 255 over the official training set.
    source: one line that says where the arrays came from.
    """

    name: str
    train: Samples
    test: Samples
    classes: int
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: str


@dataclass(frozen=True)
class DatasetInfo:
    """A registered dataset: its constants, and where its files may be.

    shape: (channels, height, width).
    sizes: official numbers of training and test images; files with fewer are accepted and said to be partial.
    first_label: the label of class 0 in the files (files that do contain a 0 are taken as zero-based).
    layouts: how the files may lie on disk, tried in this order.
    download: how torchvision fetches it; None where it cannot.
    builtin: makes (train, test) without any file; `layouts` and `download` are then unused.
    """

    name: str
    title: str
    class_names: tuple[str, ...]
    shape: tuple[int, int, int]
    sizes: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    first_label: int = 0
    layouts: tuple[Layout, ...] = ()
    download: Download | None = None
    builtin: Callable[[], tuple[Samples, Samples]] | None = None

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)
