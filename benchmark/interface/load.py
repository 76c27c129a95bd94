"""`load_records`: finished runs as a frame."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from pfl_benchmark.config.fields import as_typed, setting_in_words
from pfl_benchmark.console.terminal import say_left_out
from pfl_benchmark.errors import UserError
from pfl_benchmark.records.record import Record
from pfl_benchmark.records.store import gather
from pfl_benchmark.resolve.plugins import load_plugins

Level = Literal["runs", "rounds", "clients"]
Runs = str | Path | Record  # a results folder, the folder of a record, or a record


def load_records(*runs: Runs, level: Level = "runs") -> pd.DataFrame:
    """Finished runs as a tidy frame; what lies beside them and cannot be used is said on standard error.

    ```python
    frame = load_records("results/paper")
    frame.groupby(["setting", "method"])["accuracy"].mean()
    ```

    Args:
        runs: results folders, folders of records, or records.
        level: what a row is.

            runs: one run; its configuration, its hyper-parameters as ``hyper.NAME`` and its figures.

            rounds: one round of a run; its configuration, then the entries of rounds.jsonl.

            clients: one client of a run, after the last round: test_samples, accuracy, loss, and new, whether
            it took no part in training.

    Returns:
        Columns ``method``, ``setting``, ``seed`` and ``record`` (the folder), then those of the level.
        Accuracies are in 0..1, bytes in bytes, times in seconds. Figures that a row lacks are missing.

    Raises:
        UserError: a folder without finished runs, or a damaged one that is named itself.
    """
    makers = {"runs": _run, "rounds": _rounds, "clients": _clients}
    if level not in makers:
        raise UserError(f"level is {level!r}; expected one of: {', '.join(makers)}")
    rows = [{**_who(record), **values} for record in records_of(runs) for values in makers[level](record)]
    return pd.DataFrame(rows)


def records_of(runs: Iterable[Runs]) -> list[Record]:
    """The records, each run once."""
    load_plugins()
    runs = list(runs)
    if strange := next((one for one in runs if not isinstance(one, Runs)), None):
        raise UserError(
            f"{strange!r:.60} is neither a folder nor a record; give each as an argument of its own, as in "
            "load_records(*records)"
        )
    folders = [one.folder if isinstance(one, Record) else Path(one).expanduser() for one in runs]
    if not folders:
        raise UserError("no runs are given; expected results folders, folders of records, or records")
    found = gather(folders)
    say_left_out(found.left_out)
    return found.records


def _who(record: Record) -> dict[str, Any]:
    return {
        "method": record.method,
        "setting": setting_in_words(record.config),
        "seed": record.config.seed,
        "record": str(record.folder),
    }


def _configuration(record: Record) -> dict[str, Any]:
    config = record.config.to_dict()
    hyper = {
        f"hyper.{name}": as_typed(value) if isinstance(value, list) else value
        for name, value in config.pop("hyper").items()
    }
    return {**config, **hyper}


def _run(record: Record) -> list[dict[str, Any]]:
    figures = {name: value for name, value in record.summary.items() if isinstance(value, (int, float, str))}
    return [{**_configuration(record), **figures, "split": record.split}]


def _rounds(record: Record) -> list[dict[str, Any]]:
    config = _configuration(record)
    return [
        {**config, **{name: value for name, value in line.items() if not isinstance(value, (dict, list))}}
        for line in record.rounds
    ]


def _clients(record: Record) -> list[dict[str, Any]]:
    columns = [record.test_samples, record.accuracies, record.losses]
    if new := record.newcomers:
        more = (new.total, new.accuracies, new.loss)
        columns = [np.concatenate(pair) for pair in zip(columns, more, strict=True)]
    return [
        {
            "client": client,
            "test_samples": int(samples),
            "accuracy": float(accuracy),
            "loss": float(loss),
            "new": client >= len(record.test_samples),
        }
        for client, (samples, accuracy, loss) in enumerate(zip(*columns, strict=True))
    ]
