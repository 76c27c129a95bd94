"""Rows and columns that a file gives titles of their own, lists of them, and sections by profile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.settings import SETTINGS, find_setting
from pfl_benchmark.engine.hyper import parse_hyper
from pfl_benchmark.errors import UserError, nearest, unknown
from pfl_benchmark.studies.grid import Column, Variant
from pfl_benchmark.studies.grid_entries import FIELDS, at, field_value, method_of, one, several, yes
from pfl_benchmark.studies.grid_file import Entries, over
from pfl_benchmark.studies.printed import PrintedTable
from pfl_benchmark.studies.profiles import PROFILES

_TEXTS = ("title", "shows", "highlight", "reference", "axis")
_LISTS = ("tables", "figures", "on_request")
_SWITCHES = ("settings_as_rows", "ranked", "borrows", "prints")


def sections(entries: Entries) -> list[str]:
    """The profiles that a file has sections of, in the order of their names' table."""
    return [name for name in PROFILES if any(key.startswith(f"{name}.") for key in entries)]


def section(entries: Entries, profile: str) -> Entries:
    """The entries with those of a profile in the place of the common ones, without other sections."""
    own = {k.removeprefix(f"{profile}."): each for k, each in entries.items() if k.startswith(f"{profile}.")}
    return over(own, {k: each for k, each in entries.items() if k.partition(".")[0] not in PROFILES})


def rows_of(entries: Entries) -> tuple[Variant, ...]:
    """The rows under ``algo``: methods, titles below ``rows`` and names of lists."""
    known = _fields(entries, "rows")
    return tuple(
        _row(entries, text, known[text]) if text in known else _plain(entries, text, known)
        for text in expanded(entries, "algo", "methods, such as fedper ditto")
    )


def columns_of(entries: Entries) -> tuple[Column, ...]:
    """The columns under ``setting``: settings, titles below ``columns`` and names of lists."""
    names = expanded(entries, "setting", "settings, such as digits-s2")
    return tuple(column_of(entries, text) for text in names)


def column_of(entries: Entries, text: str) -> Column:
    """A setting, or the column of that title below ``columns``."""
    fields = _fields(entries, "columns")
    if text not in fields:
        with at(entries, "setting"):
            _refuse_misspelt("column", text, fields, SETTINGS)
            find_setting(text)
        return Column(SETTINGS[text].title, text)
    own = fields[text]
    setting = one(entries, own["setting"])
    with at(entries, own["setting"]):
        find_setting(setting)
    column = Column(text, setting, x=_number(entries, own) or 0.0, group=_group(entries, own))
    if "printed" in own:
        place = entries[own["printed"]].values
        if len(place) != 3:
            raise UserError(f"{entries[own['printed']].where}printed: expected dataset, K, and S or alpha")
        column = replace(column, paper=(place[0], place[1], place[2]))
    changes = {}
    for name, key in own.items():
        if name not in ("setting", "x", "group", "printed"):
            with at(entries, key):
                if name not in FIELDS:
                    raise unknown("field", name, FIELDS)
                changes[name] = field_value(name, one(entries, key))
    return replace(column, changes=changes)


def expanded(entries: Entries, key: str, what: str) -> tuple[str, ...]:
    """The values of an entry, with those of a list in the place of its name; each once.

    Without the entry, the titles of all rows or columns that the file has itself.
    """
    if key not in entries:
        own = _fields(entries, {"algo": "rows", "setting": "columns"}[key])
        titles = [title for title, keys in own.items() if not any(entries[k].included for k in keys.values())]
        if titles:
            return tuple(titles)
    found: list[str] = []
    for text in several(entries, key, what):
        found += entries[f"lists.{text}"].values if f"lists.{text}" in entries else [text]
    with at(entries, key):
        twice = next((text for text in found if found.count(text) > 1), None)
        if twice is not None:
            raise UserError(f"{key} has {twice} twice; give each once")
    return tuple(found)


def told(entries: Entries) -> dict[str, Any]:
    """What a file tells of its study besides rows and columns, as fields of `Study`."""
    found: dict[str, Any] = {key: one(entries, key) for key in _TEXTS if key in entries}
    found |= {key: entries[key].values for key in _LISTS if key in entries}
    found |= {key: True for key in _SWITCHES if yes(entries, key)}
    if "printed" in entries:
        if "printed_file" not in entries:
            raise UserError(f"{entries['printed'].where}printed: expected printed_file, a CSV file, as well")
        found["paper"] = PrintedTable(one(entries, "printed"), Path(one(entries, "printed_file")))
    return found


def _fields(entries: Entries, kind: str) -> dict[str, dict[str, str]]:
    """Keys of entries by the title of a row or column, and by what of it they tell."""
    found: dict[str, dict[str, str]] = {}
    for key in entries:
        if key.startswith(f"{kind}."):
            title, _, name = key.removeprefix(f"{kind}.").rpartition(".")
            found.setdefault(title, {})[name] = key
    needed = {"rows": "algo", "columns": "setting"}[kind]
    for title, own in found.items():
        if needed not in own:
            where = entries[next(iter(own.values()))].where
            raise UserError(
                f"{where}{kind}: '{title}' has no {needed}; expected {{ {needed} = \"NAME\", ... }}"
            )
    return found


def _plain(entries: Entries, text: str, known: Iterable[str]) -> Variant:
    with at(entries, "algo"):
        _refuse_misspelt("row", text.partition(":")[0], known, ALGORITHMS)
        return method_of(text)


def _refuse_misspelt(kind: str, text: str, known: Iterable[str], others: Iterable[str]) -> None:
    """UserError for what looks like a title of the file's own, and nothing else."""
    if text not in others and not nearest(text, others) and nearest(text, known):
        raise unknown(kind, text, known)


def _row(entries: Entries, title: str, own: dict[str, str]) -> Variant:
    algo = one(entries, own["algo"])
    with at(entries, own["algo"]):
        row = method_of(algo)
    method = ALGORITHMS[row.algo]
    hyper, changes = {}, {}
    for name, key in own.items():
        if name in ("algo", "x", "group", "printed"):
            continue
        with at(entries, key):
            if name in FIELDS and name not in method.Hyper.__dataclass_fields__:
                changes[name] = field_value(name, one(entries, key))
            else:
                text = ",".join(entries[key].values)
                hyper[name] = getattr(parse_hyper(method.Hyper, {name: text}, row.algo), name)
    printed = one(entries, own["printed"]) if "printed" in own else ""
    x, group = _number(entries, own), _group(entries, own)
    return replace(row, title=title, paper=printed, hyper=hyper, changes=changes, x=x, group=group)


def _group(entries: Entries, own: dict[str, str]) -> str:
    return one(entries, own["group"]) if "group" in own else ""


def _number(entries: Entries, own: dict[str, str]) -> float | None:
    """Where a row or column stands on an axis."""
    if "x" not in own:
        return None
    text = one(entries, own["x"])
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError as error:
        raise UserError(f"{entries[own['x']].where}x is '{text:.40}'; expected a number") from error
