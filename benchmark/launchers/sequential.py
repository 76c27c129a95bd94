"""One cell after the other, in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmark.errors import UserError
from benchmark.launchers import base
from benchmark.launchers.base import Outcome, Watcher, attempt, unavailable
from benchmark.runner import Execution
from benchmark.studies.grid import Cell

__all__ = ["Sequential"]


class Sequential:
    """A `benchmark.launchers.base.Launcher` without workers."""

    jobs = 1
    place = "on this machine"

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def __enter__(self) -> Sequential:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def unavailable(self, cells: Sequence[Cell], download: bool = True) -> dict[str, str]:
        """As `Launcher.unavailable`."""
        return unavailable(cells, self._execution.data_dir, download)

    def run(self, cells: Sequence[Cell], execution: Execution, watcher: Watcher) -> Outcome:
        """As `Launcher.run`."""
        outcome, waiting = Outcome(), list(cells)
        while waiting:
            busy = []
            for cell in waiting:
                ended = attempt(cell, execution, watcher.begin(cell))
                if ended.kind == "stop":
                    raise UserError(ended.problem)
                if ended.kind == "busy":
                    busy.append(cell)
                else:
                    outcome.add(cell, ended, watcher)
            if busy and len(busy) == len(waiting):
                watcher.wait(busy)
                time.sleep(base.PATIENCE)
            waiting = busy
        return outcome
