"""Rows and columns that a file gives titles of their own, lists of them, and sections by profile."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.settings import SETTINGS, find_setting
from pfl_benchmark.engine.hyper import parse_hyper
from pfl_benchmark.errors import UserError, nearest, unknown
from pfl_benchmark.studies.grid import Column, Variant
from pfl_benchmark.studies.grid_entries import (
    FIELDS,
    LISTS,
    SWITCHES,
    TEXTS,
    at,
    field_value,
    method_of,
    one,
    several,
    yes,
)
from pfl_benchmark.studies.grid_file import Entries, over
from pfl_benchmark.studies.printed import PrintedTable
from pfl_benchmark.studies.profiles import PROFILES

_NEEDED = {"rows": "algo", "columns": "setting"}


def sections(entries: Entries) -> list[str]:
    """The profiles that a file has sections of."""
    return [name for name in PROFILES if any(key.startswith(f"{name}.") for key in entries)]


def section(entries: Entries, profile: str) -> Entries:
    """The entries of a profile's section, the common ones without them, and flags, which replace both."""
    start = f"{profile}."
    own = {key.removeprefix(start): entry for key, entry in entries.items() if key.startswith(start)}
    common = {key: entry for key, entry in entries.items() if key.partition(".")[0] not in PROFILES}
    return over(own, common) | {key: entry for key, entry in common.items() if not entry.where}


def rows_of(entries: Entries) -> tuple[Variant, ...]:
    """The rows under ``algo``: methods, titles below ``rows`` and names of lists."""
    known = _parts(entries, "rows")

    def row(text: str) -> Variant:
        if text in known:
            return _row(text, known[text])
        with at(entries, "algo"):
            try:
                return method_of(text)
            except UserError:
                if nearest(text, known):
                    raise unknown("row", text, known) from None
                raise

    return tuple(row(text) for text in expanded(entries, "algo", "methods, such as fedper ditto"))


def columns_of(entries: Entries) -> tuple[Column, ...]:
    """The columns under ``setting``: settings, titles below ``columns`` and names of lists."""
    names = expanded(entries, "setting", "settings, such as digits-s2")
    return tuple(column_of(entries, text) for text in names)


def column_of(entries: Entries, text: str) -> Column:
    """A setting, or the column of that title below ``columns``."""
    known = _parts(entries, "columns")
    if text in known:
        return _column(text, known[text], _parts(entries, "rows"))
    with at(entries, "setting"):
        if text not in SETTINGS and nearest(text, known):
            raise unknown("column", text, known)
        return Column(find_setting(text).title, text)


def expanded(entries: Entries, key: str, what: str) -> tuple[str, ...]:
    """The values of ``algo`` or ``setting``, with those of lists in the place of their names, each once.

    Without the entry, the titles of all rows or columns that the file itself has.
    """
    if key not in entries:
        kind = {needed: kind for kind, needed in _NEEDED.items()}[key]
        if own := [title for title, part in _parts(entries, kind).items() if not part[key].included]:
            return tuple(own)
    found: list[str] = []
    for text in several(entries, key, what):
        found += entries[f"lists.{text}"].values if f"lists.{text}" in entries else [text]
    with at(entries, key):
        for text in found:
            if found.count(text) > 1:
                raise UserError(f"{key} has {text} twice; give each once")
    return tuple(found)


def told(entries: Entries) -> dict[str, Any]:
    """What a file tells of its study besides rows and columns, as fields of `Study`."""
    found: dict[str, Any] = {key: one(entries, key) for key in TEXTS if one(entries, key)}
    found |= {key: entries[key].values for key in LISTS if key in entries}
    if not found.get("tables", ["one"]):
        raise UserError(f"{entries['tables'].where}tables is empty; expected one or more, such as accuracy")
    found |= {key: True for key in SWITCHES if yes(entries, key)}
    if "printed" in entries:
        if "printed_file" not in entries:
            raise UserError(f"{entries['printed'].where}printed: expected printed_file, a CSV file, as well")
        found["paper"] = PrintedTable(one(entries, "printed"), Path(one(entries, "printed_file")))
    return found


def _parts(entries: Entries, kind: str) -> dict[str, Entries]:
    """The entries of each row or column, by title."""
    found: dict[str, Entries] = {}
    for key, entry in entries.items():
        if key.startswith(f"{kind}."):
            title, _, name = key.removeprefix(f"{kind}.").rpartition(".")
            found.setdefault(title, {})[name] = entry
    for title, own in found.items():
        if (needed := _NEEDED[kind]) not in own:
            where = next(iter(own.values())).where
            raise UserError(f"{where}{kind}: '{title}' has no {needed}; expected {needed} = and a name")
    return found


def _row(title: str, own: Entries) -> Variant:
    with at(own, "algo"):
        row = method_of(one(own, "algo"))
    kind = ALGORITHMS[row.algo].Hyper
    having = [spec.name for spec in dataclasses.fields(kind)]
    hyper, changes = {}, {}
    for name in own:
        with at(own, name):
            if name in ("algo", "printed", "x", "group"):
                continue
            if name in FIELDS and name not in having:
                changes[name] = field_value(name, one(own, name))
            else:
                hyper[name] = getattr(parse_hyper(kind, {name: ",".join(own[name].values)}, row.algo), name)
    paper, group = one(own, "printed"), one(own, "group")
    return dataclasses.replace(
        row, title=title, paper=paper, hyper=hyper, changes=changes, x=_number(own), group=group
    )


def _column(title: str, own: Entries, rows: Mapping[str, Entries]) -> Column:
    with at(own, "setting"):
        setting = one(own, "setting")
        find_setting(setting)
    paper, changes, chosen = None, {}, {}
    for name in own:
        with at(own, name):
            if name == "printed":
                if len(own[name].values) != 3:
                    raise UserError("printed: expected dataset, K, and S or alpha")
                paper = (own[name].values[0], own[name].values[1], own[name].values[2])
            elif name == "rows":
                for text in own[name].values:
                    if text not in rows:
                        raise unknown("row", text, rows)
                    row = _row(text, rows[text])
                    chosen[method_of(row.algo).title] = row
            elif name in FIELDS:
                changes[name] = field_value(name, one(own, name))
            elif name not in ("setting", "x", "group"):
                raise unknown("field", name, FIELDS)
    return Column(title, setting, changes, _number(own) or 0.0, paper, one(own, "group"), chosen)


def _number(own: Entries) -> float | None:
    """Where a row or column stands on an axis."""
    text = one(own, "x")
    with at(own, "x"):
        try:
            return None if not text else int(text) if text.isdigit() else float(text)
        except ValueError:
            raise UserError(f"x is '{text:.40}'; expected a number") from None
