"""JSON: the table itself, from which it can be read back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from pfl_benchmark.render.registry import register
from pfl_benchmark.render.table import Cell, Head, Table


@register("json", "JSON")
def to_json(table: Table) -> str:
    """Everything that a table has, entries that are as usual left out."""
    return json.dumps(_given(table), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def from_json(text: str) -> Table:
    """The table that `to_json` wrote.

    Raises:
        ValueError: the text is none of its.
    """
    try:
        given = json.loads(text).items()
        entries: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in given}
        entries["heads"] = tuple(Head(**head) for head in entries["heads"])
        entries["rows"] = tuple(tuple(map(_cell, row)) for row in entries["rows"])
        return Table(**entries)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no table: {error}") from error


def _cell(entries: dict[str, Any]) -> Cell:
    beside = entries.get("beside")
    return Cell(**entries | {"beside": _cell(beside) if beside else None})


def _given(thing: Any) -> Any:
    """As lists and dictionaries, without what a dataclass has by default."""
    if isinstance(thing, list | tuple):
        return [_given(part) for part in thing]
    if not dataclasses.is_dataclass(thing):
        return thing
    entries = {entry.name: (entry.default, getattr(thing, entry.name)) for entry in dataclasses.fields(thing)}
    return {name: _given(value) for name, (usual, value) in entries.items() if value not in (usual, {})}
