"""How much of what clients keep may be in memory."""

from __future__ import annotations

import contextlib
import math
import shutil
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

from torch import Tensor

from pfl_benchmark.errors import UserError
from pfl_benchmark.models import Params
from pfl_benchmark.records.rows import RowFile, new_name
from pfl_benchmark.render.forms import size


class Holder(Protocol):
    """What a store tells of its rows (`engine.clients.ClientStore`)."""

    initial: Params
    file: RowFile | None

    def scatter(self, clients: Sequence[int], stacked: Mapping[str, Tensor]) -> None:
        """Keep rows."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""

    @property
    def held_bytes(self) -> int:
        """Bytes of rows in memory."""

    def spill(self) -> bool:
        """Let a row be in the file only; False: there is none in memory."""


class ClientMemory:
    """What the stores of a run may hold in memory together, and where the rest goes.

    Args:
        folder: of their files; None: everything stays in memory.
        budget: bytes, of their rows alone; what is gathered and trained comes on top.
    """

    def __init__(self, folder: Path | None = None, budget: float = math.inf) -> None:
        self.folder, self.budget = folder, budget
        self._stores: list[weakref.ref[Holder]] = []

    @staticmethod
    def current() -> ClientMemory:
        """That which new stores use."""
        return _CURRENT.get()

    @contextlib.contextmanager
    def used(self) -> Iterator[ClientMemory]:
        """As a context: stores that are made inside use this."""
        token = _CURRENT.set(self)
        try:
            yield self
        finally:
            _CURRENT.reset(token)

    @property
    def stores(self) -> list[Holder]:
        """Those that are needed still, the first that was made first."""
        return [store for made in self._stores if (store := made()) is not None]

    def add(self, store: Holder) -> None:
        """Count a store in."""
        self._stores = [made for made in self._stores if made() is not None]
        self._stores.append(weakref.ref(store))

    def make_room(self) -> None:
        """Let rows go from memory until the rest fits: of the oldest store those unchanged for longest."""
        if self.budget == math.inf:
            return
        stores = self.stores
        held = sum(store.held_bytes for store in stores)
        for store in stores:
            while held > self.budget and store.spill():
                held -= store.row_bytes

    def new_file(self, width: int) -> RowFile:
        """A new file of rows in the folder."""
        assert self.folder is not None, "without a folder there is no budget"
        return RowFile(self.folder / new_name(), width)

    def move(self, folder: Path) -> None:
        """Make new files in another folder; those that are open stay what they are."""
        if self.folder is not None:
            self.folder = folder

    def check_room(self, met: int) -> None:
        """Raise UserError where the disk cannot take what does not fit into memory.

        Args:
            met: clients that will have rows in the end.
        """
        if self.folder is None or self.budget == math.inf:
            return
        stores = self.stores
        rows = sum(store.row_bytes for store in stores) * met
        needed = rows - self.budget - sum(store.file.nbytes for store in stores if store.file)
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise UserError(
                f"what {met:,} clients keep is {size(rows)}; with --client-memory {size(self.budget)} that "
                f"needs {size(needed)} of disk in {self.folder}, which has {size(free)}; free space there, "
                "choose another --results-dir, or give more --client-memory"
            )


_CURRENT: ContextVar[ClientMemory] = ContextVar("client memory", default=ClientMemory())  # noqa: B039
