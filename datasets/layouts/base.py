"""What the layouts have in common."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from pfl_benchmark.errors import UserError

__all__ = ["Files", "Half", "Layout", "one_line", "open_package", "require", "unreadable"]


Half = Literal["train", "test"]


@dataclass(frozen=True)
class Files:
    """The files of the two halves of a dataset, in reading order."""

    train: tuple[Path, ...]
    test: tuple[Path, ...]


class Layout(Protocol):
    """A file format with its place below a data folder."""

    @property
    def title(self) -> str:
        """Name of the format, for messages."""

    @property
    def folder(self) -> str:
        """Folder of the files, below the data folder (or absolute, for files that a system package owns)."""

    def find(self, root: Path) -> Files | None:
        """Return the files below `root`, None where there is none; UserError where some are missing."""

    def read(
        self, paths: Sequence[Path], shape: tuple[int, ...], half: Half
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return images uint8 [N, *shape] and labels int64 [N] of a half, unchecked.

        UserError for a damaged file.
        """


def require(found: Files, title: str) -> Files | None:
    """Return `found` where all of its files exist, None where none does, else raise a UserError."""
    paths = (*found.train, *found.test)
    missing = [path for path in paths if not path.is_file()]
    if len(missing) == len(paths):
        return None
    if missing:
        raise UserError(
            f"{title} in {missing[0].parent} are incomplete: {missing[0].name} is missing; "
            "add it, or remove the others to have the dataset looked for elsewhere"
        )
    return found


def open_package(path: Path) -> tarfile.TarFile:
    """Open a source package (``.tar.gz``), read whole so that its checksum is checked.

    `tarfile` by itself takes a damaged header for the end, and reads no further than the files asked for.

    Raises OSError, EOFError, zlib.error or tarfile.TarError for a damaged file.
    """
    return tarfile.open(fileobj=io.BytesIO(gzip.decompress(path.read_bytes())))


def unreadable(path: Path, expected: str, cause: object) -> UserError:
    """Return the error for a file that is damaged or is not what its name says."""
    return UserError(
        f"{path} could not be read: expected {expected}, but {one_line(cause)}; fetch it again or remove it"
    )


def one_line(cause: object, width: int = 200) -> str:
    """Return a foreign message in one short line."""
    text = " ".join(str(cause).split()) or type(cause).__name__
    return text if len(text) <= width else text[: width - 1] + "…"
