"""Making the runs that are missing: one after the other, whatever becomes of each."""

from __future__ import annotations

import contextlib
import io
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import datasets
from benchmark.engine.rounds import Observer
from benchmark.errors import UserError
from benchmark.runner import Execution, run_cell
from benchmark.studies.grid import Cell

__all__ = ["Outcome", "Watcher", "fill", "unavailable"]

_PATIENCE = 2.0  # seconds between looks at runs that another process is making


class Watcher(Protocol):
    """Watches cells being filled: a progress display."""

    def begin(self, cell: Cell) -> Observer:
        """A cell is begun; what is returned watches its rounds."""

    def end(self, cell: Cell, summary: dict[str, Any] | None, problem: str) -> None:
        """A cell has ended: with its summary, or with a problem and no record."""

    def wait(self, cells: Sequence[Cell]) -> None:
        """Only cells are left that another process is at."""


@dataclass
class Outcome:
    """What has become of the cells.

    Attributes:
        failed: cells without a record, and why.
        faults: tracebacks of those that failed by a fault of the program.
    """

    done: list[Cell] = field(default_factory=list)
    failed: list[tuple[Cell, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def unavailable(cells: Sequence[Cell], data_dir: Path | None, download: bool = True) -> dict[str, str]:
    """The datasets of `cells` that cannot be had, and why not."""
    problems = {}
    for name, config in {cell.config.dataset: cell.config for cell in cells}.items():
        try:
            datasets.load(name, data_dir, download=download, embedding=config.embedding)
        except UserError as error:
            problems[name] = str(error)
    return problems


def fill(cells: Sequence[Cell], execution: Execution, watcher: Watcher) -> Outcome:
    """Run `cells` in order; a cell that fails does not stop the others.

    A cell that another process is at comes last: it is waited for, and taken over if that process ends
    without finishing it.

    Raises:
        UserError: records cannot be written (permission, space): nothing else could succeed either.
    """
    outcome, waiting = Outcome(), list(cells)
    while waiting:
        busy = []
        for cell in waiting:
            observer = watcher.begin(cell)
            try:
                # A method's notes are in its summary; printed for every cell they would drown the progress.
                with contextlib.redirect_stderr(io.StringIO()):
                    summary = run_cell(cell.config, execution, observer)
            except UserError as error:
                if isinstance(error.__cause__, BlockingIOError):  # the run's lock is taken
                    busy.append(cell)
                    continue
                if isinstance(error.__cause__, OSError):
                    raise
                _fail(outcome, watcher, cell, str(error))
            except Exception as error:
                outcome.faults.append(traceback.format_exc())
                _fail(outcome, watcher, cell, f"{type(error).__name__}: {error}")
            else:
                outcome.done.append(cell)
                watcher.end(cell, summary, "")
        if busy and len(busy) == len(waiting):
            watcher.wait(busy)
            time.sleep(_PATIENCE)
        waiting = busy
    return outcome


def _fail(outcome: Outcome, watcher: Watcher, cell: Cell, problem: str) -> None:
    problem = " ".join(problem.splitlines())
    outcome.failed.append((cell, problem))
    watcher.end(cell, None, problem)
