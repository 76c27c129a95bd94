"""Parquet files with a row for each image, or with a row of features for each sample."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pfl_benchmark.datasets import cache
from pfl_benchmark.datasets.layouts.base import one_line
from pfl_benchmark.datasets.layouts.images import decode, describe
from pfl_benchmark.datasets.own.found import Found
from pfl_benchmark.datasets.own.place import halves_of
from pfl_benchmark.datasets.own.table import read_tables
from pfl_benchmark.errors import UserError, nearest

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["guessed", "read_images", "read_parquet"]

_ROLES = ("image", "label", "client")

_EXPECTED = (
    "the columns image (encoded bytes, or a struct with them), label (text or whole numbers) and, "
    "optionally, client (text or whole numbers)"
)
_HINTS = {
    "image": ("im", "pic", "photo", "png", "jpg"),
    "label": ("label", "class", "target", "categor", "digit"),
}
_SHOWN = 8  # columns that messages list


def read_parquet(root: Path, side: int, columns: Mapping[str, str] = MappingProxyType({})) -> Found:
    """Read a file, or a folder with ``train.parquet`` and ``test.parquet``; rows are samples.

    columns: what those of `_ROLES` are called that have other names, or, in a table of features, those of
        `own.table.ROLES`.

    Raises:
        UserError: a file is missing or damaged, a column is missing or of another type, a cell is empty, or
            an image cannot be read.
    """
    files = halves_of(root, "parquet", "parquet")
    if "image" not in columns and all(map(_is_table, files)):
        if side:
            raise UserError(f"{root}@{side}: a table has no pixels to be scaled to; drop @{side}")
        return read_tables(root, files, [_frame(file) for file in files], columns)
    if "ignore" in columns:
        raise UserError(
            f"{root} holds images, of which no column is ignored; drop ignore={columns['ignore']}"
        )
    return read_images(root, files, [False, True] if len(files) > 1 else None, side, columns)


def read_images(
    root: Path, files: list[Path], halves: list[bool] | None, side: int, columns: Mapping[str, str]
) -> Found:
    """Read files with a row for each image.

    halves: which files are for testing; None: they do not say.

    Raises:
        UserError: as `read_parquet`.
    """
    tables = [_table(file, columns) for file in files]
    if halves is not None and any("client" in table.column_names for table in tables):
        raise UserError(
            f"{root} has a column client and separate files for testing; a client's samples are divided by "
            "--test-share: put all rows into one file, or leave the column out"
        )
    labels: list[Any] = [label for table in tables for label in table.column("label").to_pylist()]
    numbers = all(isinstance(label, int) for label in labels)
    clients: list[Any] | None = None
    if "client" in tables[0].column_names:
        clients = [client for table in tables for client in table.column("client").to_pylist()]
    test = None if halves is None else np.repeat(halves, [len(table) for table in tables])
    arrays = cache.cached(
        "-".join(["parquet", root.stem, str(side), *_slug(columns.get("image", "image"))]),
        files,
        None,
        lambda: _decoded(files, tables, side),
        ("x", "transparent", "turned"),
    )
    names = sorted(set(labels), key=None if numbers else str)
    told = (
        " and ".join(file.name for file in files)
        if halves is not None
        else f"the columns {_columns(clients, columns)}"
    )
    told += describe(arrays)
    return Found(
        arrays["x"],
        [str(label) for label in labels],
        tuple(map(str, names)),
        None if clients is None else _padded(clients),
        test,
        told,
    )


def _is_table(path: Path) -> bool:
    """Whether a file that can be read has no column that is, or should be, one of images."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException):
        return False  # `_table` says what is wrong
    return "image" not in schema.names and all(map(_of_image, schema.types))


def _frame(path: Path) -> pd.DataFrame:
    """A table of features; what pandas keeps of an index is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import types

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"{path} could not be read: expected a complete parquet file, but {one_line(error)}; "
            "write it again"
        ) from error
    for field in table.schema:
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        known = (
            types.is_integer,
            types.is_floating,
            types.is_boolean,
            types.is_string,
            types.is_large_string,
        )
        if not any(fits(kind) for fits in (*known, types.is_null)):
            raise UserError(
                f"{path}: the column {field.name} is {field.type}; expected numbers or text: cast it, or "
                "drop it from the file"
            )
    names = [name for name in table.column_names if not name.startswith("__index_level_")]
    return table.select(names).replace_schema_metadata().to_pandas()


def _slug(image: str) -> list[str]:
    """What tells decoded images of one column from those of another; nothing for the usual one."""
    return [] if image == "image" else [hashlib.sha256(image.encode()).hexdigest()[:8]]


def _columns(clients: list[Any] | None, columns: Mapping[str, str]) -> str:
    names = [columns.get(role, role) for role in _ROLES[: 2 if clients is None else 3]]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _padded(clients: list[Any]) -> list[str]:
    """Names of clients whose order is that of the numbers, if they are numbers."""
    width = max((len(str(client)) for client in clients), default=0) if isinstance(clients[0], int) else 0
    return [str(client).zfill(width) for client in clients]


def _table(path: Path, columns: Mapping[str, str]) -> pa.Table:
    """The columns image, label and, where there is one, client of a file, checked."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
        places = _places(path, schema, columns)
        table = pq.read_table(path, columns=[*places.values()])
    except (OSError, pa.ArrowException) as error:
        if path.is_file() and path.read_bytes()[:4] != b"PAR1":
            raise UserError(
                f"{path} is no parquet file: expected {_EXPECTED}; write it as parquet, or give a folder of "
                "images as --dataset folder:PATH"
            ) from error
        raise UserError(
            f"{path} could not be read: expected a complete parquet file, but {one_line(error)}; "
            "write it again"
        ) from error
    if not len(table):
        raise UserError(f"{path} has no rows; expected one for each image")
    for role, name in places.items():
        column = table.column(name)
        where = name if role == name else f"{name} ({role})"
        if (row := _empty(column)) is not None:
            raise UserError(
                f"{path}: expected a value of {where} in every row, but row {row} has none (the first is row "
                "0); fill it in, or drop that row"
            )
        if fault := _of_image(column.type) if role == "image" else _of_name(column.type, where):
            raise UserError(f"{path}: {where} is {column.type}; expected {fault}")
    return table.select([*places.values()]).rename_columns([*places])


def _places(path: Path, schema: pa.Schema, columns: Mapping[str, str]) -> dict[str, str]:
    """Where a file has each of `_ROLES`: the names given, else the roles' own."""
    found = ", ".join(schema.names[:_SHOWN]) + ", …" * (len(schema.names) > _SHOWN)
    if twice := next((name for name in schema.names if schema.names.count(name) > 1), None):
        raise UserError(f"{path} has two columns called {twice}; rename one of them")
    if gone := next((name for name in columns.values() if name not in schema.names), None):
        raise UserError(f"{path} has no column {gone}{nearest(gone, schema.names)}; it has {found}")
    places = {role: columns.get(role, role) for role in _ROLES}
    places = {role: name for role, name in places.items() if name in schema.names}
    if {"image", "label"} <= {*places}:
        return places
    guesses = {role: places.get(role) or _guess(role, schema) for role in ("image", "label")}
    words = [f"{role}={name or 'COLUMN'}" for role, name in guesses.items() if name != role]
    missing = " and ".join(role for role in guesses if role not in places)
    raise UserError(
        f"{path} has no column {missing}; it has {found}. Expected {_EXPECTED}: name or rename them, such as "
        f"--columns {','.join(words)}"
    )


def _guess(role: str, schema: pa.Schema) -> str:
    """A column that is probably meant; empty: none."""
    if role == "image":
        fit = [field.name for field in schema if not _of_image(field.type)]
    else:
        fit = [field.name for field in schema if not _of_name(field.type, "")]
    named = [name for name in fit if any(word in name.lower() for word in _HINTS[role])]
    return (named or fit * (role == "image" or len(fit) == 1) or [""])[0]


def guessed(path: Path, columns: Mapping[str, str]) -> dict[str, str]:
    """`columns`, with what image and label are probably called in a file where nobody says."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException):
        return dict(columns)  # `_table` says what is wrong
    roles = [role for role in ("image", "label") if role not in columns and role not in schema.names]
    return {**columns, **{role: name for role in roles if (name := _guess(role, schema))}}


def _empty(column: pa.ChunkedArray) -> int | None:
    """The first row without a value; None: all have one."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    absent = column.is_null(nan_is_null=types.is_floating(column.type))
    if types.is_string(column.type) or types.is_large_string(column.type):
        absent = pc.or_(absent, pc.equal(pc.utf8_trim_whitespace(column.fill_null("")), ""))
    row = pc.index(absent, pa.scalar(True)).as_py()
    return None if row < 0 else row


def _of_name(kind: pa.DataType, where: str) -> str:
    """What was expected in the place of a type that is neither text nor whole numbers; empty: it is."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind):
        return ""
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return (
            "one class a row, as text or a whole number: of one-hot rows take the place of the 1, "
            f"{where}.map(numpy.argmax) in pandas"
        )
    if types.is_boolean(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return f"text or whole numbers: cast it, {where}.astype('int64') in pandas"
    return "text or whole numbers: cast it"


def _of_image(kind: pa.DataType) -> str:
    """What was expected in the place of a type without encoded bytes; empty: it has them."""
    from pyarrow import types

    struct = types.is_struct(kind) and kind.get_field_index("bytes") >= 0
    kind = kind.field("bytes").type if struct else kind
    if types.is_binary(kind) or types.is_large_binary(kind):
        return ""
    if types.is_string(kind) or types.is_large_string(kind):
        return (
            "encoded bytes, not the names of files: put the files' content in, or give --dataset folder:PATH"
        )
    return "encoded bytes, not pixels or numbers: save each image as PNG and put the content of the file in"


def _decoded(files: list[Path], tables: list[pa.Table], side: int) -> dict[str, np.ndarray]:
    def content(where: str, column: pa.ChunkedArray, row: int) -> Callable[[], bytes]:
        def read() -> bytes:
            value = column[row].as_py()
            content = value["bytes"] if isinstance(value, dict) else value
            if not content:
                raise UserError(
                    f"{where}: image has no bytes; put the content of a file in, or drop that row"
                )
            return bytes(content)

        return read

    images = [
        (where := f"row {row} of {file}", content(where, table.column("image"), row))
        for file, table in zip(files, tables, strict=True)
        for row in range(len(table))
    ]
    return decode(images, side)
