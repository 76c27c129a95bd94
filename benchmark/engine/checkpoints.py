"""Checkpoints, which write what has changed: rows of clients lie in files beside it; it names their places.

A checkpoint writes the rows that have changed since the last one, waits until they are on the disk, and then
replaces the file that names them. What a kill leaves is the one checkpoint or the other.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pfl_benchmark.engine.client_memory import ClientMemory
from pfl_benchmark.engine.clients import Place, Rows
from pfl_benchmark.records.files import load_tensors, save_tensors
from pfl_benchmark.records.rows import RowFile, is_name, new_name
from pfl_benchmark.records.writer import RunRecord

_MARK = "rows of clients"  # the entry of a dictionary that stands for rows: the name of their file
_PART = "in a file of its own"  # that of one which stands for an entry of the state
_LARGE = 2**16  # bytes of tensors from which on that is worth a file


@dataclass(frozen=True)
class Saved:
    """What a checkpoint took: seconds, and bytes written."""

    seconds: float
    nbytes: int


class Checkpoints:
    """The checkpoints of a run, in the folder of its record.

    What of a method's state is large and the same as in the checkpoint before goes to a file of its own, and
    is not written again.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._last: dict[str, tuple[str, str]] = {}  # digest and file (empty: none) of the state's entries

    def save(self, algorithm: Mapping[str, Any], **more: Any) -> Saved:
        """Write a method's state, and more beside it."""
        started, folder = time.perf_counter(), self._record.folder
        plain, files = packed(algorithm, lambda width: RowFile(folder / new_name(), width))
        written = 0
        for file in files:
            file.sync()
        before, self._last = self._last, {}
        for name, value in plain.items():
            digest, nbytes = _digest(value)
            kept = ""
            if before.get(name, ("",))[0] == digest and nbytes >= _LARGE:
                kept = before[name][1]
                if not kept:
                    kept = new_name(ending="part")
                    save_tensors(folder / kept, value, durable=True)
                    written += nbytes
                plain[name] = {_PART: kept}
            self._last[name] = digest, kept
        waited = time.perf_counter() - started
        seconds = self._record.save_checkpoint({"algorithm": plain, **more})
        written += self._record.checkpoint.stat().st_size if self._record.checkpoint.exists() else 0
        written += sum(file.settle() for file in files)
        self.drop([*(file.path.name for file in files), *(kept for _, kept in self._last.values())])
        return Saved(waited + seconds, written)

    def load(self, algorithm: Mapping[str, Any], device: torch.device) -> Any:
        """The state of a method, of what a checkpoint holds of it.

        Raises:
            ValueError: a file of it is not as it was written.
        """
        folder = self._record.folder
        whole = {
            name: load_part(folder, value[_PART], device)
            if isinstance(value, dict) and _PART in value
            else value
            for name, value in algorithm.items()
        }
        return unpacked(whole, folder)[0]

    def drop(self, needed: Iterable[str] = ()) -> None:
        """Remove files that neither the checkpoint needs nor a store of this process."""
        used = [store.file.path.name for store in ClientMemory.current().stores if store.file is not None]
        self._record.drop_rows({*needed, *used})


def load_part(folder: Path, name: str, device: torch.device) -> Any:
    """What a checkpoint has in a file of its own; ValueError: it is not as it was written."""
    if not is_name(name) or not (folder / name).exists():
        raise ValueError(f"{name} is missing")
    return load_tensors(folder / name, device)


def _digest(value: Any) -> tuple[str, int]:
    """A digest of nested containers of tensors and plain values, and the bytes of the tensors."""
    found, nbytes = hashlib.blake2b(digest_size=16), 0

    def enter(inner: Any) -> None:
        nonlocal nbytes
        if isinstance(inner, torch.Tensor):
            found.update(f"{inner.dtype}{tuple(inner.shape)}".encode())
            flat = inner.detach().cpu().reshape(-1)
            found.update(flat.view(torch.uint8).numpy().data if len(flat) else b"")
            nbytes += inner.nbytes
        elif isinstance(inner, dict):
            found.update(repr(list(inner)).encode())
            for each in inner.values():
                enter(each)
        elif isinstance(inner, list | tuple):
            found.update(f"{type(inner)}{len(inner)}".encode())
            for each in inner:
                enter(each)
        else:
            found.update(repr(inner).encode())

    enter(value)
    return found.hexdigest(), nbytes


def packed(state: Any, new_file: Callable[[int], RowFile], apart: bool = False) -> tuple[Any, list[RowFile]]:
    """A state without rows of clients: they are brought to files, of which it names the places.

    Args:
        new_file: makes one for rows of a width, for stores that have none.
        apart: copy all rows to files of their own, which the stores do not use.

    Returns:
        The state, and the files.
    """
    files: list[RowFile] = []

    def pack(rows: Rows) -> dict[str, Any]:
        file, places = (rows.copied if apart else rows.written)(new_file)
        if file is not None and file not in files:
            files.append(file)
        name, width = (file.path.name, file.width) if file is not None else ("", 0)
        return {_MARK: name, "width": width, "places": _table(places)}

    return _replaced(state, lambda value: isinstance(value, Rows), pack), files


def unpacked(state: Any, folder: Path, write: bool = True) -> tuple[Any, list[RowFile]]:
    """What a state by `packed` stands for, and the files in `folder` that it names.

    Args:
        write: whether stores may go on in these files.

    Raises:
        ValueError: a row is not as it was written.
    """
    named: dict[tuple[str, int], set[Place]] = {}

    def collect(entry: Mapping[str, Any]) -> None:
        if entry[_MARK]:
            named.setdefault((entry[_MARK], entry["width"]), set()).update(_places(entry).values())

    _replaced(state, _stands_for_rows, collect)
    files = {}
    for (name, width), places in named.items():
        files[name] = RowFile.found(folder, name, width, (place.number for place in places), write)
        _check(files[name], places)

    def unpack(entry: Mapping[str, Any]) -> Rows:
        return Rows({}, _places(entry), files.get(entry[_MARK]))

    return _replaced(state, _stands_for_rows, unpack), [*files.values()]


def _check(file: RowFile, places: Iterable[Place]) -> None:
    row = bytearray(file.width)
    for place in sorted(places):
        file.read(place.number, memoryview(row))
        if zlib.crc32(row) != place.checksum:
            raise ValueError(f"the checksum of a row in {file.path.name} is another")


def _table(places: Mapping[int, Place]) -> torch.Tensor:
    """Client, place and checksum of each row [n, 3], as numbers of 32 bits."""
    table = np.array([(client, *place) for client, place in sorted(places.items())], dtype=np.uint32)
    return torch.from_numpy(table.reshape(-1, 3).view(np.int32))


def _places(entry: Mapping[str, Any]) -> dict[int, Place]:
    table = entry["places"].cpu().numpy().view(np.uint32).tolist()
    return {client: Place(number, checksum) for client, number, checksum in table}


def _stands_for_rows(value: Any) -> bool:
    return isinstance(value, dict) and _MARK in value


def _replaced(value: Any, chosen: Callable[[Any], bool], make: Callable[[Any], Any]) -> Any:
    """Nested containers with other values in place of the chosen ones."""
    if chosen(value):
        return make(value)
    if isinstance(value, dict):
        return {name: _replaced(inner, chosen, make) for name, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_replaced(inner, chosen, make) for inner in value)
    return value
