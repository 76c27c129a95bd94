"""Parquet files with a row for each image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pfl_benchmark.datasets import cache
from pfl_benchmark.datasets.layouts.base import unreadable
from pfl_benchmark.datasets.own.found import Found
from pfl_benchmark.datasets.own.images import decode, describe
from pfl_benchmark.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_parquet"]

_EXPECTED = (
    "the columns image (encoded bytes, or a struct with them), label (text or whole numbers) and, "
    "optionally, client (text or whole numbers)"
)
_HALVES = ("train.parquet", "test.parquet")


def read_parquet(root: Path, side: int) -> Found:
    """Read a file, or a folder with ``train.parquet`` and ``test.parquet``; rows are samples.

    Raises:
        UserError: a file is missing or damaged, a column is missing or of another type, a cell is empty, or
            an image cannot be read.
    """
    files = [root / name for name in _HALVES] if root.is_dir() else [root]
    for file in files:
        if not file.is_file():
            what = f"a folder without {file.name}" if root.is_dir() else "no file"
            raise UserError(
                f"{root} is {what}; expected a parquet file, or a folder with {' and '.join(_HALVES)}"
            )
    tables = [_table(file) for file in files]
    if len(files) > 1 and any("client" in table.column_names for table in tables):
        raise UserError(
            f"{root} has a column client and separate files for testing; a client's samples are divided by "
            "--test-share: put all rows into one file, or leave the column out"
        )
    labels: list[Any] = [label for table in tables for label in table.column("label").to_pylist()]
    numbers = all(isinstance(label, int) for label in labels)
    clients = tables[0].column("client").to_pylist() if "client" in tables[0].column_names else None
    test = None
    if len(files) > 1:
        test = np.repeat([False, True], [len(table) for table in tables])
    arrays = cache.cached(
        f"parquet-{root.stem}-{side}",
        files,
        None,
        lambda: _decoded(files, tables, side),
        ("x", "transparent", "turned"),
    )
    names = sorted(set(labels), key=None if numbers else str)
    told = " and ".join(file.name for file in files) if len(files) > 1 else f"the columns {_columns(clients)}"
    told += describe(arrays)
    return Found(
        arrays["x"],
        [str(label) for label in labels],
        tuple(map(str, names)),
        None if clients is None else _padded(clients),
        test,
        told,
    )


def _columns(clients: list[Any] | None) -> str:
    return "image and label" if clients is None else "image, label and client"


def _padded(clients: list[Any]) -> list[str]:
    """Names of clients whose order is that of the numbers, if they are numbers."""
    width = max((len(str(client)) for client in clients), default=0) if isinstance(clients[0], int) else 0
    return [str(client).zfill(width) for client in clients]


def _table(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import types

    try:
        names = pq.read_schema(path).names
        if len(set(names)) < len(names) or not {"image", "label"} <= {*names}:
            raise unreadable(path, _EXPECTED, f"it has {', '.join(names)}")
        table = pq.read_table(path, columns=[name for name in ("image", "label", "client") if name in names])
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, "a complete parquet file", error) from error
    if not len(table):
        raise unreadable(path, "a row for each image", "it has no rows")
    for name in table.column_names:
        kind = table.schema.field(name).type
        text = types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind)
        if name != "image" and not (types.is_integer(kind) or text):
            raise unreadable(path, _EXPECTED, f"{name} is {kind}")
        if table.column(name).null_count:
            row = table.column(name).is_null().to_pylist().index(True)
            raise unreadable(path, f"a value of {name} in every row", f"row {row} has none")
    return table


def _decoded(files: list[Path], tables: list[pa.Table], side: int) -> dict[str, np.ndarray]:
    def content(column: pa.ChunkedArray, row: int) -> Callable[[], bytes]:
        def read() -> bytes:
            value = column[row].as_py()
            return bytes((value.get("bytes") if isinstance(value, dict) else value) or b"")

        return read

    from pyarrow import types

    for file, table in zip(files, tables, strict=True):
        kind = table.schema.field("image").type
        struct = types.is_struct(kind) and kind.get_field_index("bytes") >= 0
        kind = kind.field("bytes").type if struct else kind
        if not (types.is_binary(kind) or types.is_large_binary(kind)):
            raise unreadable(file, _EXPECTED, f"image is {kind}")
    images = [
        (f"row {row} of {file}", content(table.column("image"), row))
        for file, table in zip(files, tables, strict=True)
        for row in range(len(table))
    ]
    return decode(images, side)
