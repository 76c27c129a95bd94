"""Tables of features: which columns are measured and which are categories, and a row as numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pfl_benchmark.datasets.own.found import Found, in_order, padded
from pfl_benchmark.errors import UserError, nearest

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["IGNORED", "ROLES", "read_tables"]

ROLES = ("label", "client", "ignore")
IGNORED = "+"  # between the columns of ``ignore=one+other``
_SHOWN = 8  # columns that messages list
# Numbers that are not read as such: with a decimal comma, groups of three digits, or per cent.
_WRITTEN = r"[-+]?(\d+,\d+|\d{1,3}([.,']\d{3})+([.,]\d+)?|\d+([.,]\d+)? ?%)"
_FEW = 8  # rows that may count up by chance
_MANY = 100  # categories of a column that may be ids or free text


def read_tables(
    root: Path, files: Sequence[Path], frames: Sequence[pd.DataFrame], columns: Mapping[str, str]
) -> Found:
    """Read one table, or those for training and for testing.

    columns: what the columns of `ROLES` are called; ``ignore`` may name several.

    Measured columns stay as they are, a column of texts becomes one of 0 and 1 for each of them.

    Raises:
        UserError: a column is missing, empty somewhere, constant, or neither numbers nor categories; or the
            labels are no classes.
    """
    import pandas as pd

    places, ignored = _places(files[0], list(map(str, frames[0].columns)), columns)
    for file, frame in zip(files, frames, strict=True):
        names = [str(name) for name in frame.columns]
        if names != [str(name) for name in frames[0].columns]:
            raise UserError(f"{file} has other columns than {files[0]}; expected the same ones in one order")
        if not len(frame):
            raise UserError(f"{file} has no rows; expected one for each sample")
    sizes = [len(frame) for frame in frames]
    whole = pd.concat(frames, ignore_index=True)
    whole.columns = whole.columns.map(str)
    whole = whole.drop(columns=ignored)
    _check_missing(root, whole)
    if len(files) > 1 and "client" in places:
        raise UserError(
            f"{root} has a column {places['client']} (client) and separate files for testing; a client's "
            "rows are divided by --test-share: put all rows into one file, or leave the column out"
        )
    labels = _names(root, whole[places["label"]], "label", places["label"])
    clients = (
        _names(root, whole[places["client"]], "client", places["client"]) if "client" in places else None
    )
    x, features, numeric = _features(root, whole.drop(columns=[*places.values()]), sizes)
    test = np.repeat([False, True], sizes) if len(files) > 1 else None
    measured = f"{len(numeric)} measured"
    categories = whole.shape[1] - len(places) - len(numeric)
    told = (
        f"{len(whole):,} rows, {measured} columns and {categories} of categories"
        if categories
        else (f"{len(whole):,} rows, {measured} columns")
    )
    classes = in_order(labels)
    if clients is not None:
        clients = padded(clients)
    return Found(x, labels, tuple(classes), clients, test, told, "rows", features, numeric)


def _places(path: Path, names: list[str], columns: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Where a table has its label and its clients; and the columns to be ignored."""
    found = ", ".join(names[:_SHOWN]) + ", …" * (len(names) > _SHOWN)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{path} has two columns called {twice}; rename one of them")
    ignored = columns.get("ignore", "")
    dropped = [ignored] if ignored in names else list(filter(None, ignored.split(IGNORED)))
    asked = [name for role, name in columns.items() if role != "ignore"]
    if gone := next((name for name in (*asked, *dropped) if name not in names), None):
        raise UserError(f"{path} has no column {gone}{nearest(gone, names)}; it has {found}")
    places = {role: columns.get(role, role) for role in ROLES[:2]}
    places = {role: name for role, name in places.items() if name in names and name not in dropped}
    if "label" not in places:
        raise UserError(
            f"{path} has no column label{nearest('label', names)}; it has {found}: say which one holds the "
            "classes, such as --columns label=COLUMN"
        )
    if both := next((name for name in asked if name in dropped), None):
        raise UserError(f"--columns ignores {both} and asks for it; expected one of the two")
    return places, dropped


def _check_missing(root: Path, table: pd.DataFrame) -> None:
    counts = table.isna().sum()
    if total := int(counts.sum()):
        worst = counts[counts > 0].sort_values(ascending=False, kind="stable")
        named = ", ".join(f"{name} {count:,}" for name, count in worst.iloc[:3].items())
        named += ", …" * (len(worst) > 3)
        row = int(table.isna().any(axis=1).to_numpy().argmax())
        raise UserError(
            f"{root} has {total:,} missing value{'s' * (total > 1)} ({named}; the first in row {row}, from "
            "0); fill them in, drop their rows, or leave a column out by --columns ignore=COLUMN"
        )


def _names(root: Path, column: pd.Series, role: str, name: str) -> list[str]:
    """The classes or clients of rows, as text."""
    if column.dtype.kind == "f":
        values = column.to_numpy()
        if not np.isfinite(values).all() or (values != np.round(values)).any():
            odd = values[~np.isfinite(values) | (values != np.round(values))][0]
            raise UserError(
                f"{root}: {name} ({role}) holds numbers such as {odd:g}; expected "
                + ("classes, as text or whole numbers" if role == "label" else "text or whole numbers")
            )
        column = column.astype("int64")
    texts = [str(value).strip() for value in column]
    if "" in texts:
        raise UserError(f"{root}: {name} ({role}) is blank in row {texts.index('')} (from 0); fill it in")
    return texts


def _is_count(values: np.ndarray) -> bool:
    """Whether rows are numbered, from 0 or from 1 or on from those of a file before."""
    counted = len(values) > _FEW and (np.diff(values) == 1).all()
    return bool(counted and values[0] in (0, 1))


def _features(
    root: Path, table: pd.DataFrame, sizes: Sequence[int]
) -> tuple[np.ndarray, tuple[str, ...], tuple[int, ...]]:
    """Rows as numbers float64 [N, F], the features' names, and which are measured.

    sizes: of the files that the rows are from.
    """
    import pandas as pd

    parts: list[np.ndarray] = []
    names: list[str] = []
    numeric: list[int] = []
    for name in table.columns:
        column = table[name]
        if column.nunique() < 2:
            raise UserError(
                f"{root}: the column {name} is constant ({str(column.iloc[0])[:40]!r} in every row), so that "
                f"nothing can be learned of it; leave it out by --columns ignore={name}"
            )
        if (values := _numbers(root, name, column)) is not None:
            if all(_is_count(part) for part in np.split(values, np.cumsum(sizes)[:-1])):
                raise UserError(
                    f"{root}: the column {name} counts the rows from {values[0]:g} to {values[-1]:g}, "
                    f"and tells their order alone; leave it out by --columns ignore={name}"
                )
            numeric.append(len(names))
            names.append(str(name))
            parts.append(values[:, None])
            continue
        texts = column.astype(str).str.strip()
        found = sorted(set(texts))
        numbers = [text for text in texts if re.fullmatch(_WRITTEN, text)]
        if 2 * len(numbers) > len(texts) and not isinstance(column.dtype, pd.CategoricalDtype):
            raise UserError(
                f"{root}: the column {name} holds numbers such as {numbers[0]!r}; write them as 1234.5, or "
                f"leave the column out by --columns ignore={name}"
            )
        if len(found) > _MANY and 2 * len(found) > len(texts):
            raise UserError(
                f"{root}: the column {name} has {len(found):,} different texts in {len(texts):,} rows: ids "
                f"or free text, no categories; leave it out by --columns ignore={name}"
            )
        names += [f"{name}={category}" for category in found]
        parts.append((texts.to_numpy()[:, None] == np.array(found)[None]).astype(np.float64))
    if not parts:
        raise UserError(f"{root} has no columns of features; expected some beside the label")
    return np.concatenate(parts, axis=1), tuple(names), tuple(numeric)


def _numbers(root: Path, name: str, column: pd.Series) -> np.ndarray | None:
    """A measured column, float64 [N]; None for one of categories."""
    import pandas as pd

    if column.dtype.kind == "b" or isinstance(column.dtype, pd.CategoricalDtype):
        return None
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = np.isnan(values)
    if bad.all():
        return None
    if bad.any():
        if 2 * bad.sum() >= len(values):
            return None
        row = int(bad.argmax())
        texts = f"{int(bad.sum()):,} row{'s' * int(bad.sum() > 1)}, such as {str(column.iloc[row])[:40]!r}"
        raise UserError(
            f"{root}: the column {name} is of numbers, but for {texts} in row {row} (from 0); write numbers "
            f"there, or leave the column out by --columns ignore={name}"
        )
    if np.isinf(values).any():
        row = int(np.isinf(values).argmax())
        raise UserError(
            f"{root}: the column {name} is infinite in row {row} (from 0); expected finite numbers"
        )
    return values
