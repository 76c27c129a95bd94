"""All runs as one flat table, for whoever goes on with pandas, R or a spreadsheet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from benchmark.records.store import Record

__all__ = ["RUNS", "runs_csv"]

RUNS = "runs.csv"

_PARTS = ("result", "budget", "hyper", "environment")


def runs_csv(records: Sequence[Record]) -> str:
    """One line a run: its folder, method, configuration, ``result.…``, ``hyper.…``, ``environment.…``."""
    lines = [_line(record) for record in records]
    names = sorted({name: None for line in lines for name in line}, key=_place)
    table = pd.DataFrame(lines, columns=names).convert_dtypes()  # whole numbers stay whole beside gaps
    return table.to_csv(index=False, lineterminator="\n")


def _place(name: str) -> int:
    part, dot, _ = name.partition(".")
    return _PARTS.index(part) if dot else -1


def _line(record: Record) -> dict[str, Any]:
    config, summary = record.config.to_dict(), dict(record.summary)
    parts = {
        "hyper": config.pop("hyper"),
        "budget": summary.pop("budget", {}),
        "environment": summary.pop("environment"),
        "result": summary,
    }
    line = {
        "record": record.folder.name,
        "method": record.method,
        "split": record.split,
        "data": record.data.checksum,
        **config,
        **{f"{part}.{name}": value for part, found in parts.items() for name, value in found.items()},
    }
    return {name: _plain(value) for name, value in line.items()}


def _plain(value: Any) -> Any:
    """A value as a cell; text that a spreadsheet would take for a formula has an apostrophe before it."""
    if isinstance(value, list | dict):
        return json.dumps(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value
