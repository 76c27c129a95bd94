"""Runs that nobody watches, and runs that leave no record."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.budget import Plan
from pfl_benchmark.engine.rounds import Observer, run
from pfl_benchmark.records.writer import RunRecord

__all__ = ["Quiet", "run_unrecorded"]


class Quiet(Observer):
    """An observer that shows nothing."""

    def start(self, rounds: int, done: int) -> None:
        return

    def round(self, line: Mapping[str, Any]) -> None:
        return


def run_unrecorded(algorithm: Algorithm, observer: Observer) -> dict[str, Any]:
    """A run from its first round to the record, which is dropped; returns its summary."""
    config = algorithm.task.config
    with tempfile.TemporaryDirectory() as folder:
        record = RunRecord(Path(folder), config, config.algo)
        record.folder.mkdir()
        return run(algorithm, Plan(config.rounds, "rounds"), record, None, observer, {})
