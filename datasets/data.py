"""What a dataset is: arrays in memory, and what is known about it before any file is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np

from pfl_benchmark.datasets.download import Archive, Download
from pfl_benchmark.datasets.layouts import Layout

__all__ = ["PADDING", "UNKNOWN", "Dataset", "DatasetInfo", "Kind", "Reader", "Samples"]

Kind = Literal["images", "words", "characters", "series", "rows"]
_UNITS = {
    "images": "images",
    "words": "tweets",
    "characters": "characters",
    "series": "windows",
    "rows": "rows",
}

PADDING, UNKNOWN = 0, 1  # rows of word vectors: behind the end of a text, and for words without a vector


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples and their classes.

    x: by the dataset's kind. Images: uint8 [N, C, H, W], values 0..255. Words: int32 [N, T], a row of the
        word vectors for every word, `PADDING` behind the last one. Characters: uint8 [N, T], numbers in an
        alphabet. Series: float32 [N, C, T], measurements of C channels. Rows: float64 [N, F], features as
        they are in a table, which `standardise` turns into what is trained on.
    y: int64 [N], values 0..classes-1.
    """

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset in memory.

    mean, std: per channel, of x / 255 over the official training set (images).
    source: one line that says where the arrays came from.
    vectors: float32 [V, d], frozen word vectors; the rows `PADDING` and `UNKNOWN` are zero (words).
    users: int64 [N], whose a sample is; `train` and `test` are then one and the same, and a split by users
        divides them.
    groups: int64 [N], parts of a user's samples that stand in the order of time, such as recordings.
    held_out: bool [N], which samples of users are for testing; None where the data do not say.
    overlap: how many samples of a group that follow a sample share measurements with it.
    digest: changes with the arrays, where a split's indices would not tell.
    """

    name: str
    train: Samples
    test: Samples
    classes: int
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: str
    vectors: np.ndarray | None = None
    users: np.ndarray | None = None
    digest: str = ""
    kind: Kind = "images"
    groups: np.ndarray | None = None
    overlap: int = 0
    held_out: np.ndarray | None = None

    @cached_property
    def checksum(self) -> str:
        """First 16 hex digits of the sha256 of all samples, labels, word vectors and users."""
        digest = hashlib.sha256()
        parts = (self.train.x, self.train.y, self.test.x, self.test.y)
        arrays = (*parts, self.vectors, self.users, self.groups, self.held_out)
        for array in (one for one in arrays if one is not None):
            # Little-endian on every machine.
            plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            digest.update(f"{plain.shape} {plain.dtype.str} ".encode())
            digest.update(plain.data)
        return digest.hexdigest()[:16]

    @cached_property
    def places(self) -> np.ndarray:
        """The place of every sample in its group, from 0, int64 [N]."""
        assert self.groups is not None
        order = np.argsort(self.groups, kind="stable")
        ordered = self.groups[order]
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        return places

    def cut(self, rows: np.ndarray, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Divide samples of a group, int64 [n] in the order of time: those before its `last` ones, and these.

        Samples before them that share measurements with them are in neither part.
        """
        before, after = rows[: len(rows) - last], rows[len(rows) - last :]
        if last:
            before = before[self.places[before] < self.places[after[0]] - self.overlap]
        return before, after

    @property
    def halves(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The rows for training and those for testing, int64; None: all are one, which each run divides."""
        if self.held_out is not None:
            return np.flatnonzero(~self.held_out), np.flatnonzero(self.held_out)
        if self.train is self.test:
            return None
        return np.arange(len(self.train)), np.arange(len(self.test))

    @property
    def unit(self) -> str:
        """What a sample is, in the plural."""
        return _UNITS[self.kind]


class Reader(Protocol):
    """Reads a dataset whose samples belong to users.

    builtin: it needs no files.
    """

    builtin: ClassVar[bool]

    def load(self, info: DatasetInfo, roots: Sequence[Path], download: bool, embedding: int) -> Dataset:
        """Return the dataset, with word vectors of width `embedding` (0: of any) where there are some.

        roots: data folders to look in, the preferred one first.

        Raises UserError where files are missing, damaged or of another width.
        """


@dataclass(frozen=True)
class DatasetInfo:
    """A registered dataset: its constants, and where its files may be.

    shape: (channels, height, width) of images, (words,) or (characters,) of texts, (channels, steps) of
        series, (features,) of rows.
    sizes: official numbers of training and test samples (with a reader: of all, and 0); files with fewer are
        accepted and said to be partial.
    first_label: the label of class 0 in the files (files that do contain a 0 are taken as zero-based).
    layouts: how the files may lie on disk, tried in this order.
    download: how torchvision fetches it; None where it cannot.
    how_to_get: what to do where it cannot be downloaded and no file is found in the data folder `{folder}`.
    builtin: makes (train, test) without any file; `layouts` and `download` are then unused.
    reader: reads a dataset whose samples belong to users; all of these are then unused.
    user_names: of users that have names, such as domains; client numbers follow them (`--partition domains`).
    symbols: size of the alphabet of characters.
    features: names of the columns of rows, where they have some.
    numeric: which features of rows are measured, and so standardised; the others stay as they are.
    network: what ``--network`` calls its own network; empty: it has none, or its plugin brings one.
    origin: where it comes from, in a few words.
    licence: of the data, as their source states it.
    citation: what to cite where the data are used.
    """

    name: str
    title: str
    class_names: tuple[str, ...]
    shape: tuple[int, ...]
    sizes: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    first_label: int = 0
    layouts: tuple[Layout, ...] = ()
    download: Download | Archive | None = None
    how_to_get: str = ""
    builtin: Callable[[], tuple[Samples, Samples]] | None = None
    reader: Reader | None = None
    origin: str = "files or download"
    licence: str = "not stated by the source"
    citation: str = "not stated by the source"
    kind: Kind = "images"
    user_names: tuple[str, ...] = ()
    symbols: int = 0
    features: tuple[str, ...] = ()
    numeric: tuple[int, ...] = ()
    network: str = ""

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def holding(
        self,
        train: Samples,
        test: Samples,
        source: str,
        vectors: np.ndarray | None = None,
        users: np.ndarray | None = None,
        digest: str = "",
        groups: np.ndarray | None = None,
        overlap: int = 0,
        held_out: np.ndarray | None = None,
    ) -> Dataset:
        """The dataset with these samples; the rest as in `Dataset`."""
        return Dataset(
            self.name,
            train,
            test,
            self.classes,
            self.class_names,
            mean=self.mean,
            std=self.std,
            source=source,
            vectors=vectors,
            users=users,
            digest=digest,
            kind=self.kind,
            groups=groups,
            overlap=overlap,
            held_out=held_out,
        )

    def partial(self, train: int, test: int = 0) -> str:
        """A remark on numbers of samples that are not the official ones (`sizes`); empty where they are."""
        if (train, test) == self.sizes:
            return ""
        of = [f"{size:,} of {official:,}" for size, official in zip((train, test), self.sizes, strict=True)]
        found = f"{of[0]} {self.unit}" if self.by_users else f"{of[0]} training and {of[1]} test images"
        return f" (partial: {found})"

    @property
    def unit(self) -> str:
        """What a sample is, in the plural."""
        return _UNITS[self.kind]

    @property
    def by_users(self) -> bool:
        """True where samples belong to users, who are the clients."""
        return self.reader is not None

    @property
    def needs_files(self) -> bool:
        """False for datasets that are there wherever this program is."""
        return self.builtin is None and not (self.reader is not None and self.reader.builtin)
