"""The rows of clients in checkpoints: they lie in files beside it, and it names their places.

A checkpoint writes the rows that have changed since the last one, waits until they are on the disk, and then
replaces the file that names them. What a kill leaves is the one checkpoint or the other.
"""

from __future__ import annotations

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
from pfl_benchmark.records.rows import RowFile, new_name
from pfl_benchmark.records.writer import RunRecord

_MARK = "rows of clients"  # the entry of a dictionary that stands for rows: the name of their file


@dataclass(frozen=True)
class Saved:
    """What a checkpoint took: seconds, and bytes of rows."""

    seconds: float
    rows: int


def save(record: RunRecord, state: Mapping[str, Any]) -> Saved:
    """Write a checkpoint."""
    started = time.perf_counter()
    plain, files, written = packed(state, lambda width: RowFile(record.folder / new_name(), width))
    for file in files:
        file.sync()
    waited = time.perf_counter() - started
    seconds = record.save_checkpoint(plain)
    for file in files:
        file.settle()
    drop_rows(record, files)
    return Saved(waited + seconds, written)


def drop_rows(record: RunRecord, needed: Iterable[RowFile] = ()) -> None:
    """Remove files of rows that neither the checkpoint needs nor a store of this process."""
    used = [store.file for store in ClientMemory.current().stores if store.file is not None]
    record.drop_rows({file.path.name for file in (*needed, *used)})


def packed(
    state: Any, new_file: Callable[[int], RowFile], apart: bool = False
) -> tuple[Any, list[RowFile], int]:
    """A state without rows of clients: they are brought to files, of which it names the places.

    Args:
        new_file: makes one for rows of a width, for stores that have none.
        apart: copy all rows to files of their own, which the stores do not use.

    Returns:
        The state, the files, and the bytes of rows that were written.
    """
    files: list[RowFile] = []
    written = 0

    def pack(rows: Rows) -> dict[str, Any]:
        nonlocal written
        file, places, count = (rows.copied if apart else rows.written)(new_file)
        written += count
        if file is not None and file not in files:
            files.append(file)
        name, width = (file.path.name, file.width) if file is not None else ("", 0)
        return {_MARK: name, "width": width, "places": _table(places)}

    return _replaced(state, lambda value: isinstance(value, Rows), pack), files, written


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
