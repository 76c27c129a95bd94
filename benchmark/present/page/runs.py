"""All runs: the list on the page, and one flat table for pandas, R or a spreadsheet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from pfl_benchmark.present.page.mixtures import UNKNOWN
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.forms import no_formula
from pfl_benchmark.render.table import Head

RUNS = "runs.csv"

MADE_WITH = ("device", "executor", "commit")
HEADS = (
    *(Head(text, words=True) for text in ("method", "setting")),
    *map(Head, ("seed", "accuracy", "worst\N{NO-BREAK SPACE}10\N{NO-BREAK SPACE}%", "bytes", "time")),
    *(Head(text, words=True) for text in MADE_WITH),
)
_COSTS = ("bytes_up", "bytes_down", "bytes_broadcast", "samples", "adaptation_samples", "steps", "rounds")


def run_blocks(record: Record) -> dict[str, str]:
    """What the list tells of a run when it is opened, by headings."""
    config, summary = record.config.to_dict(), record.summary
    results = {
        "accuracy": summary["accuracy"],
        "unweighted": summary["accuracy_unweighted"],
        "worst 10 %": summary["accuracy_worst10"],
        "spread over clients": summary["accuracy_std"],
        **{name: summary[name] for name in ("macro_f1", "auc", "global_accuracy") if name in summary},
        "evaluated model": summary["evaluated"],
        **{name.replace("_", " "): summary[name] for name in _COSTS if name in summary},
        "seconds": summary["seconds"],
        "samples per second": summary["samples_per_second"],
        "rounds taken over": summary.get("shared_rounds", UNKNOWN),
        "times resumed": summary.get("resumed", 0),
        "rounds set by": summary.get("budget", {}).get("set_by", ""),
    }
    hyper = config.pop("hyper")
    parts = {"Configuration": config, "Hyper-parameters": hyper, "Environment": summary["environment"]}
    blocks = {}
    for title, values in {**parts, "Result and cost": results}.items():
        width = max(map(len, values), default=0)
        blocks[title] = "\n".join(f"{name:{width}}  {_value(value)}" for name, value in values.items())
    return blocks


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else json.dumps(value)


def runs_csv(records: Sequence[Record]) -> str:
    """One line a run: its folder, method, configuration, ``result.…``, ``hyper.…``, ``environment.…``."""
    lines = [_line(record) for record in records]
    names = sorted({name: None for line in lines for name in line}, key=_part_of)
    table = pd.DataFrame(lines, columns=names).convert_dtypes()  # whole numbers stay whole beside gaps
    return table.to_csv(index=False, lineterminator="\n")


def _part_of(name: str) -> int:
    part, dot, _ = name.partition(".")
    return ("result", "budget", "hyper", "environment").index(part) if dot else -1


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
    """A value as a cell; see `no_formula`."""
    if isinstance(value, list | dict):
        return json.dumps(value)
    return no_formula(value) if isinstance(value, str) else value
