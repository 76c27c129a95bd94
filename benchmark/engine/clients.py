"""Clients in chunks, and what they keep between their participations."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pfl_benchmark.engine.client_memory import ClientMemory
from pfl_benchmark.engine.params import clone, expand, row
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import Params
from pfl_benchmark.records.rows import RowFile

CHUNK = 20  # clients whose models are held at the same time
_ALIGNED = 16  # bytes, the size of the largest type


def chunks(clients: Sequence[int]) -> Iterator[list[int]]:
    """Cut a list of clients into pieces that are held in memory together."""
    for start in range(0, len(clients), CHUNK):
        yield list(clients[start : start + CHUNK])


class Place(NamedTuple):
    """Where a client's row is in a file, and the checksum (CRC-32) of its bytes."""

    number: int
    checksum: int


class Layout:
    """How a client's tensors lie in a row of bytes: one after the other, with the types of the start.

    Attributes:
        width: bytes of a row.
    """

    def __init__(self, initial: Mapping[str, Tensor]) -> None:
        self._parts: dict[str, tuple[slice, torch.Size, torch.dtype]] = {}
        self.width = 0
        for name, tensor in initial.items():
            size = tensor.numel() * tensor.element_size()
            self._parts[name] = (slice(self.width, self.width + size), tensor.shape, tensor.dtype)
            self.width += math.ceil(size / _ALIGNED) * _ALIGNED
        self.width = max(self.width, _ALIGNED)
        self._device = next((tensor.device for tensor in initial.values()), torch.device("cpu"))

    def check(self, stacked: Mapping[str, Tensor]) -> None:
        """Refuse rows of other shapes or types than the start has; UserError."""
        for name, (_, shape, dtype) in self._parts.items():
            found = stacked[name]
            if found.shape[1:] != shape or found.dtype != dtype:
                raise UserError(
                    f"clients are to keep '{name}' as {found.dtype} {tuple(found.shape[1:])}, and began with "
                    f"{dtype} {tuple(shape)}; expected the same in every `ClientStore.scatter`"
                )

    def pack(self, params: Params) -> Tensor:
        """The bytes of a client's tensors, uint8 [width]."""
        flat = torch.zeros(self.width, dtype=torch.uint8)
        for name, part in self._views(flat).items():
            part.copy_(params[name])
        return flat

    def read(self, file: RowFile, place: Place) -> Params:
        """The tensors of a row in a file."""
        flat = torch.empty(self.width, dtype=torch.uint8)
        file.read(place.number, flat.numpy().data)
        return self._views(flat.to(self._device))

    def _views(self, flat: Tensor) -> Params:
        return {
            name: flat[part].view(dtype).view(shape)
            if part.stop > part.start
            else flat.new_empty(shape, dtype=dtype)
            for name, (part, shape, dtype) in self._parts.items()
        }


def put(file: RowFile, row: Tensor) -> Place:
    """Write a packed row."""
    content = row.numpy().data
    return Place(file.write(content), zlib.crc32(content))


class Rows(Mapping[int, Params]):
    """What clients keep, by client, as it was when `ClientStore.state` was called.

    Rows in a file are read when they are asked for, and are right until the store changes.

    Args:
        held: those in memory.
        places: where rows are in `file`; a client may have its row in both.
        store: whose rows they are, if it still is.
    """

    def __init__(
        self,
        held: Mapping[int, Params],
        places: Mapping[int, Place],
        file: RowFile | None = None,
        store: ClientStore | None = None,
    ) -> None:
        self.held, self.places, self.file, self._store = dict(held), dict(places), file, store

    def __getitem__(self, client: int) -> Params:
        if client in self.held:
            return self.held[client]
        assert self.file is not None and self._store is not None  # noqa: PT018
        return self._store.layout.read(self.file, self.places[client])

    def __iter__(self) -> Iterator[int]:
        return iter(sorted({*self.held, *self.places}))

    def __len__(self) -> int:
        return len({*self.held, *self.places})

    def written(self, new_file: Callable[[int], RowFile]) -> tuple[RowFile | None, dict[int, Place]]:
        """Bring the store's rows to its file: the file (None: no rows), and places by client."""
        assert self._store is not None
        return self._store.write_changed(new_file)

    def copied(self, new_file: Callable[[int], RowFile]) -> tuple[RowFile | None, dict[int, Place]]:
        """The same with all rows in a new file, which the store does not use."""
        if not self:
            return None, {}
        assert self._store is not None
        layout = self._store.layout
        file = new_file(layout.width)
        places = {client: put(file, layout.pack(params)) for client, params in self.items()}
        return file, places


class ClientStore:
    """Tensors of each client, gathered and scattered by cohort; all clients' have the same shapes and types.

    A client never met has no entry: it reads the common initial values, so it costs nothing. What does not
    fit into the memory that a run gives its clients (`ClientMemory`) is in a file in its folder.

    Attributes:
        initial: what a client has that was never met.
        layout: of a client's row in a file.
        file: of rows, if there is one: beyond the memory, or for a checkpoint.
    """

    def __init__(self, initial: Mapping[str, Tensor], clients: int) -> None:
        self.initial: Params = clone(initial)
        self.clients = clients
        self.layout = Layout(self.initial)
        self._held: dict[int, Params] = {}  # the longest unchanged first
        self._places: dict[int, Place] = {}  # of rows that are in the file as they are now
        self.file: RowFile | None = None
        self._memory = ClientMemory.current()
        self._memory.add(self)

    @property
    def met(self) -> list[int]:
        """Clients that have an entry of their own."""
        return sorted({*self._held, *self._places})

    def gather(self, clients: Sequence[int]) -> Params:
        """Copies of what `clients` keep, stacked [m, ...]."""
        if not clients:
            return expand(self.initial, 0)
        own = [self._row(client) for client in clients]
        return {name: torch.stack([params[name] for params in own]) for name in self.initial}

    def _row(self, client: int) -> Params:
        if client in self._held:
            return self._held[client]
        if client in self._places:
            assert self.file is not None
            return self.layout.read(self.file, self._places[client])
        return self.initial

    def scatter(self, clients: Sequence[int], stacked: Mapping[str, Tensor]) -> None:
        """Keep copies of `stacked` [m, ...] for `clients`; entries that are not kept here are ignored.

        Raises:
            UserError: other shapes or types than at the start, or a file that cannot be written.
        """
        if not self.initial:
            return
        kept = {name: stacked[name] for name in self.initial}
        self.layout.check(kept)
        for position, client in enumerate(clients):
            self._held.pop(client, None)
            self._held[client] = clone(row(kept, position))
            self._forget(client)
        self._memory.make_room()

    def _forget(self, client: int) -> None:
        """The row in the file is an old one."""
        place = self._places.pop(client, None)
        if place is not None and self.file is not None:
            self.file.release(place.number)

    # -- the file -------------------------------------------------------------------------------

    @property
    def row_bytes(self) -> int:
        """Bytes of what a client keeps."""
        return self.layout.width if self.initial else 0

    @property
    def held_bytes(self) -> int:
        """Bytes of the rows that are in memory."""
        return len(self._held) * self.row_bytes

    def spill(self) -> bool:
        """Let the row that has been in memory for longest be in the file only; False: there is none."""
        for client in self._held:
            self._write(client)
            del self._held[client]
            return True
        return False

    def _write(self, client: int) -> None:
        """Bring a row to the file, unless it is there."""
        if client in self._places:
            return
        if self.file is None:
            self._use(self._memory.new_file(self.layout.width))
            assert self.file is not None
        self._places[client] = put(self.file, self.layout.pack(self._held[client]))

    def write_changed(self, new_file: Callable[[int], RowFile]) -> tuple[RowFile | None, dict[int, Place]]:
        """Bring all rows to the file, which `new_file` makes where there is none; see `Rows.written`."""
        if self.file is None and self._held:
            self._use(new_file(self.layout.width))
        for client in self._held:
            self._write(client)
        return self.file, self._places

    def _use(self, file: RowFile | None) -> None:
        self.file = file
        if file is not None:
            file.users.add(self)

    # -- resume ---------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later."""
        return {"initial": self.initial, "kept": Rows(self._held, self._places, self.file, self)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned.

        Raises:
            ValueError: its rows do not fit to its start.
        """
        self.initial, kept = dict(state["initial"]), state["kept"]
        self.layout, self._held, self._places, self.file = Layout(self.initial), {}, {}, None
        if not isinstance(kept, Rows):  # of a checkpoint of before
            self._held = dict(kept)
        elif (file := kept.file) is not None and file.width != self.layout.width:
            raise ValueError("its rows have another size")
        elif file is not None and not file.writable:
            for client, place in kept.places.items():
                self._held[client] = self.layout.read(file, place)
                self._memory.make_room()
        else:
            self._held, self._places = dict(kept.held), dict(kept.places)
            self._use(file)
        self._memory.make_room()
