"""The tweets of Sentiment140 in any of the forms in which people have them."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pfl_benchmark.datasets.layouts.base import unreadable
from pfl_benchmark.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LEAST", "find_tweets", "read_tweets"]

LEAST = 10  # tweets of a user; with fewer nobody can be trained and tested, so the others are not kept
_COLUMNS = ("target", "id", "date", "query", "user", "text")  # of the CSV, which has no header
_USED = ("target", "id", "user", "text")
_OFFICIAL = ("training.1600000.processed.noemoticon.csv", "trainingandtestdata.zip")
_KINDS = (".csv", ".zip", ".parquet")
_NEGATIVE, _NEUTRAL, _POSITIVE = "0", "2", "4"
_CANNOT = "a CSV with the columns " + ", ".join(_COLUMNS)


def find_tweets(folders: Sequence[Path]) -> Path | None:
    """Return the file to read: an official one in the first folder that has any, else its largest file."""
    for folder in folders:
        found = [path for path in sorted(folder.glob("*")) if path.suffix in _KINDS and path.is_file()]
        official = [path for name in _OFFICIAL for path in found if path.name == name]
        if found:
            return official[0] if official else max(found, key=lambda path: path.stat().st_size)
    return None


def read_tweets(path: Path) -> tuple[pd.DataFrame, int]:
    """Return the tweets of users with at least `LEAST` of them, and the number of all tweets in the file.

    Columns: `label` (0 negative, 1 positive), `user` (name), `text`. Neutral tweets and ids that carry both
    labels (the official file has some) are dropped; a repeated id counts once. Rows keep the file's order.

    Raises UserError for a file that is damaged or lacks columns.
    """
    table = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    table = table.astype(object).where(table.notna(), "").astype(str)
    total = len(table)
    label = table["target"].str.strip()
    bad = ~label.isin([_NEGATIVE, _NEUTRAL, _POSITIVE]) | (table["id"] == "") | (table["user"] == "")
    if bad.any():
        place = int(bad.to_numpy().argmax())
        found = ", ".join(f"{name} {table[name].iloc[place]!r}" for name in ("target", "id", "user"))
        expected = "in every row a target 0, 2 or 4, an id and a user"
        raise unreadable(path, expected, f"row {place + 1:,} has {found}")
    table = table.assign(label=(label == _POSITIVE).astype("int64"))[label != _NEUTRAL]
    labels_of_id = table.groupby("id")["label"].transform("nunique")
    table = table[labels_of_id == 1].drop_duplicates("id")
    table = table[table.groupby("user")["user"].transform("size") >= LEAST]
    if table.empty:
        raise UserError(f"{path} has no user with {LEAST} tweets or more: expected tweets with their users")
    return table[["label", "user", "text"]].reset_index(drop=True), total


def _parquet(path: Path) -> pd.DataFrame:
    import pyarrow as pa  # slow to import, as pandas; most runs read a cache instead
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
        missing = {name for name in _USED if names.count(name) != 1}
        if missing:
            raise unreadable(path, f"the columns {', '.join(_USED)}, each once", _found(names))
        return pq.read_table(path, columns=list(_USED)).to_pandas()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise unreadable(path, "a complete parquet file", error) from error


def _found(names: Sequence[str]) -> str:
    return f"it has {', '.join(names)}"


def _csv(path: Path) -> pd.DataFrame:
    try:
        if path.suffix != ".zip":
            with path.open("rb") as file:
                return _parse(path, file)
        with zipfile.ZipFile(path) as archive, archive.open(_member(path, archive)) as file:
            return _parse(path, file)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise unreadable(path, "a complete CSV or zip file", error) from error


def _member(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """The largest CSV of an archive: the official one also holds a small test set without users in common."""
    found = [member for member in archive.infolist() if member.filename.endswith(".csv")]
    if not found:
        raise unreadable(path, "a .csv file in it", f"it holds {', '.join(archive.namelist()) or 'nothing'}")
    return max(found, key=lambda member: member.file_size)


def _parse(path: Path, file: IO[bytes]) -> pd.DataFrame:
    """Parse Latin-1, quoted fields, with or without a line of column names."""
    import pandas as pd

    try:
        table = pd.read_csv(file, header=None, dtype=str, encoding="latin-1", keep_default_na=False)
    except (ValueError, pd.errors.EmptyDataError) as error:
        raise unreadable(path, _CANNOT, error) from error
    head = [str(name).strip().lower() for name in table.iloc[0]]
    if len(set(head) & set(_COLUMNS)) > 1:
        table, names = table.iloc[1:], head
    else:
        names = list(_COLUMNS)
    missing = {name for name in _USED if names.count(name) != 1}
    if missing or len(table.columns) != len(names):
        cause = _found(names) if missing else f"it has {len(table.columns)} columns"
        raise unreadable(path, _CANNOT, cause)
    table.columns = pd.Index(names)
    return table[list(_USED)]
