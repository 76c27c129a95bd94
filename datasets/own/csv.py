"""CSV files: the text of a table, and what is wrong with it before anything is made of it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pfl_benchmark.datasets.layouts.base import one_line
from pfl_benchmark.datasets.own.found import Found
from pfl_benchmark.datasets.own.place import halves_of
from pfl_benchmark.datasets.own.table import read_tables
from pfl_benchmark.errors import UserError, why

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_csv"]

_SEPARATORS = ",;\t|"
_MISSING = ["?"]  # besides those that pandas knows: an empty cell, NA, NaN, null, None, …


def read_csv(root: Path, side: int, columns: Mapping[str, str] = MappingProxyType({})) -> Found:
    """Read a file, or a folder with ``train.csv`` and ``test.csv``; rows are samples.

    columns: what the columns of labels and clients are called, and which others are ignored.

    Raises:
        UserError: a file is missing or is no table, or the table is not one to learn from.
    """
    if side:
        raise UserError(f"{root}@{side}: a table has no pixels to be scaled to; drop @{side}")
    files = halves_of(root, "CSV", "csv")
    return read_tables(root, files, [_frame(file) for file in files], columns)


def _frame(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        content = path.read_bytes()[: 1 << 16]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {why(error)}; give yourself access") from error
    if b"\0" in content or content[:4] == b"PAR1":
        other = "; give it as --dataset parquet:PATH" if content[:4] == b"PAR1" else ", but bytes; export it"
        raise UserError(
            f"{path} is no text: expected a CSV file with a row of names and a row a sample{other}"
        )
    head = content.decode("utf-8-sig", errors="replace").splitlines()[:1]
    if not head or not head[0].strip():
        raise UserError(f"{path} has no first line with the columns' names; expected a CSV file")
    separator = max(_SEPARATORS, key=head[0].count)
    try:
        names = pd.read_csv(
            path, sep=separator, header=None, nrows=1, dtype=str, skipinitialspace=True, encoding="utf-8-sig"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows are longer than the first line
            frame = pd.read_csv(
                path,
                sep=separator,
                na_values=_MISSING,
                skipinitialspace=True,
                index_col=False,
                encoding="utf-8-sig",
                low_memory=False,
            )
    except pd.errors.ParserWarning as error:
        raise UserError(
            f"{path} has rows with more cells than its {names.shape[1]} columns; write it again, with a name "
            "for each column"
        ) from error
    except (ValueError, OSError) as error:  # pandas' and Unicode's errors are ValueErrors
        raise UserError(
            f"{path} could not be read: expected a CSV file in UTF-8 with as many cells in every row, but "
            f"{one_line(error)}; write it again"
        ) from error
    given = ["" if name != name else str(name).strip() for name in names.iloc[0]]
    if all(map(_is_number, given)):
        raise UserError(
            f"{path} begins with numbers, {', '.join(given[:3])}…; expected the columns' names in its "
            "first line"
        )
    if "" in given:
        raise UserError(
            f"{path} has a column without a name, number {given.index('') + 1}; name it, or leave it out: "
            "pandas writes no index under to_csv(index=False)"
        )
    if len(given) != len(frame.columns):
        raise UserError(f"{path} has {len(given)} names for {len(frame.columns)} columns; write it again")
    frame.columns = given
    return frame


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
