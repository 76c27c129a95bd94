"""A file of rows of one size, for what is too much for memory, and of which checkpoints name the places.

Rows are read and written one by one, not mapped: on Linux that was three times as fast to write, as fast to
read, and what has been touched does not count as memory of the process.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from weakref import WeakSet

from pfl_benchmark.errors import UserError, why

PATTERN = "checkpoint-*"  # in the folder of a run: files of rows, and others that the checkpoint needs
_NAME = re.compile(r"[\w-]+-[0-9a-f]{12}\.(rows|part)")


def new_name(first: str = "checkpoint", ending: str = "rows") -> str:
    """A name that no other file has."""
    return f"{first}-{uuid.uuid4().hex[:12]}.{ending}"


def is_name(name: str) -> bool:
    """Whether it is one of those, and leads nowhere else."""
    return bool(_NAME.fullmatch(name))


class RowFile:
    """Rows of `width` bytes, each in a place that is numbered from 0.

    A row that the last checkpoint names is not written over before the next one names others (`settle`).

    Attributes:
        users: those who read it. Where there are several, no place is used again: another may need it.

    Raises:
        UserError: it cannot be made.
    """

    def __init__(self, path: Path, width: int) -> None:
        self.path, self.width = path, width
        self.users: WeakSet[object] = WeakSet()
        self._free: list[int] = []
        self._fresh: set[int] = set()  # written since the last checkpoint, which names none of them
        self._former: list[int] = []  # named by the last checkpoint, and needed by nobody else
        try:
            self._file = path.open("x+b", buffering=0)
        except OSError as error:
            raise self._error(error) from error
        self._count = self._written = 0

    @classmethod
    def found(cls, folder: Path, name: str, width: int, used: Iterable[int], write: bool = True) -> RowFile:
        """A file as a checkpoint names it, with the places that it names.

        Raises:
            OSError: it cannot be opened.
            ValueError: it is not there, or has other places.
        """
        if not is_name(name) or width < 1:
            raise ValueError("it names no file of rows")
        rows, named = cls.__new__(cls), {*used}
        rows.path, rows.width, rows.users = folder / name, width, WeakSet()
        try:
            rows._file = rows.path.open("r+b" if write else "rb", buffering=0)
        except FileNotFoundError as error:
            raise ValueError(f"{name} is missing") from error
        rows._count = -(-os.fstat(rows._file.fileno()).st_size // width)
        if named and not 0 <= min(named) <= max(named) < rows._count:
            raise ValueError(f"{name} is too short")
        rows._free = [place for place in reversed(range(rows._count)) if place not in named]
        rows._fresh, rows._former, rows._written = set(), [], 0
        return rows

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self._count * self.width

    @property
    def writable(self) -> bool:
        return self._file.writable()

    def write(self, row: memoryview) -> int:
        """Write a row and return its place; UserError where that fails."""
        place = self._free.pop() if self._free else self._count
        self._count = max(self._count, place + 1)
        self._fresh.add(place)
        self._written += len(row)
        try:
            self._file.seek(place * self.width)
            while len(row):
                row = row[self._file.write(row) :]
        except OSError as error:
            raise self._error(error) from error
        return place

    def read(self, place: int, into: memoryview) -> None:
        """Read a row; ValueError where the file ends before."""
        self._file.seek(place * self.width)
        while len(into):
            count = self._file.readinto(into)
            if not count:
                raise ValueError(f"{self.path.name} is too short")
            into = into[count:]

    def release(self, place: int) -> None:
        """A row is not needed any more, but for the last checkpoint."""
        if len(self.users) > 1:
            return
        (self._free if place in self._fresh else self._former).append(place)
        self._fresh.discard(place)

    def sync(self) -> None:
        """Wait until all rows are on the disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._error(error) from error

    def settle(self) -> int:
        """A new checkpoint names all rows that are in use now; returns the bytes written since the last."""
        self._free += self._former
        written = self._written
        self._fresh, self._former, self._written = set(), [], 0
        return written

    def _error(self, error: OSError) -> UserError:
        return UserError(
            f"cannot write {self.path}: {why(error)}; free space there, choose another --results-dir, or "
            "give more --client-memory"
        )
