"""What stands behind ``--dataset``, in its parts: ``parquet:PATH@32?image=img,label=fine_label``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.registry import DATASETS
from pfl_benchmark.errors import UserError

__all__ = ["LEAST", "OWN_KINDS", "halves_of", "is_own", "parts", "sized", "with_columns"]

# What stands before the colon, and what ``--columns`` may name there.
_ROLES: dict[str, tuple[str, ...]] = {
    "folder": (),
    "parquet": ("image", "label", "client", "ignore"),
    "csv": ("label", "client", "ignore"),
    "hf": ("image", "label", "client", "revision"),
    "leaf": (),
    "pfllib": (),
}
OWN_KINDS = tuple(_ROLES)
_SUCH = {
    "hf": "image=img,label=fine_label",
    "csv": "label=species,ignore=id",
    "parquet": "image=img,label=fine_label",
}
LEAST, _LARGEST = 4, 1024  # pixels a side


def is_own(text: str) -> bool:
    """Whether a dataset is called by where it lies, ``folder:PATH``, or by name and side, ``pacs@64``."""
    kind, colon, _ = text.partition(":")
    name, at, _ = text.partition("@")
    return (kind in _ROLES and bool(colon)) or (bool(at) and name in DATASETS and _scales(DATASETS[name]))


def _scales(info: DatasetInfo) -> bool:
    """Whether a dataset's reader scales images."""
    return hasattr(info.reader, "side")


def with_columns(text: str, columns: Mapping[str, str]) -> str:
    """``parquet:PATH?image=img``: what was asked for by `--columns`, as one word.

    Raises:
        UserError: no file with columns, or no column for one that it can have.
    """
    kind = text.partition(":")[0]
    roles = _ROLES.get(kind, ())
    if not roles or ":" not in text:
        known = [
            "hf:OWNER/NAME" if kind == "hf" else f"{kind}:PATH" for kind, roles in _ROLES.items() if roles
        ]
        raise UserError(f"--columns is for --dataset {' or '.join(known)} alone; drop it")
    for role, name in columns.items():
        if role not in roles or not name or {*name} & {*",=?\n"}:
            raise UserError(
                f"--columns has {role}={name}; expected {', '.join(roles[:-1])} or {roles[-1]} and the name "
                f"of a column, such as {_SUCH[kind]}"
            )
    if len({*columns.values()}) < len(columns):
        raise UserError("--columns names a column twice; expected a column of its own for each")
    return f"{text}?{','.join('='.join(item) for item in columns.items())}"


def halves_of(root: Path, kind: str, ending: str) -> list[Path]:
    """The files of a table: `root`, or ``train`` and ``test`` with an ending in that folder.

    Raises:
        UserError: one of them is missing.
    """
    names = [f"{half}.{ending}" for half in ("train", "test")]
    files = [root / name for name in names] if os.path.isdir(root) else [root]
    for file in files:
        if not os.path.isfile(file):  # False, where pathlib raises: too long a name
            what = f"a folder without {file.name}" if os.path.isdir(root) else "no file"
            raise UserError(
                f"{root} is {what}; expected a {kind} file, or a folder with {' and '.join(names)}"
            )
    return files


def parts(kind: str, place: str) -> tuple[Path, int, dict[str, str]]:
    """Path, side and columns; a path with an @ or a ? that exists is meant as it is."""
    head, mark, query = place.rpartition("?")
    if not _ROLES[kind] or not mark or "=" not in query or _exists(kind, place):
        return *_path(kind, place), {}
    columns = dict(part.partition("=")[::2] for part in query.split(","))
    with_columns(f"{kind}:{head}", columns)
    return *_path(kind, head), columns


def _exists(kind: str, place: str) -> bool:
    return kind != "hf" and os.path.exists(os.path.expanduser(place))


def _path(kind: str, place: str) -> tuple[Path, int]:
    """Path and side; a path with an @ that exists is meant as it is."""
    if kind == "hf":
        head, side = sized(f"{kind}:{place}")
        return Path(head.partition(":")[2]), side
    if not place or "\0" in place or "\n" in place:
        raise UserError(f"--dataset {kind}: expected a path behind the colon, such as {kind}:PATH")
    path = Path(place).expanduser().absolute()
    if os.path.exists(path):  # False, where pathlib raises: too long a name
        return path, 0
    head, side = sized(f"{kind}:{place}")
    return (Path(head.partition(":")[2]).expanduser().absolute(), side) if side else (path, 0)


def sized(text: str) -> tuple[str, int]:
    """What stands before an @, and the side behind it; 0: there is no @.

    Raises UserError where the side is none.
    """
    head, at, side = text.rpartition("@")
    if not at or not head or head.endswith(":"):
        return text, 0
    if not (side.isascii() and side.isdecimal()) or len(side) > 4 or not LEAST <= int(side) <= _LARGEST:
        raise UserError(
            f"--dataset {text}: the side behind the @ is '{side}'; expected a whole number of pixels "
            f"from {LEAST} to {_LARGEST}"
        )
    return head, int(side)
