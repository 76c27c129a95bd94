"""One cell after the other, in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.launch import base
from pfl_benchmark.launch.base import Launcher, Outcome, Watcher, attempt
from pfl_benchmark.studies.grid import Cell

__all__ = ["Sequential"]


class Sequential(Launcher):
    """A launcher without workers."""

    def __init__(self, execution: Execution) -> None:
        super().__init__(1, "on this machine", execution)

    def run(self, cells: Sequence[Cell], watcher: Watcher) -> Outcome:
        """As `Launcher.run`."""
        outcome, waiting = Outcome(), list(cells)
        while waiting:
            busy = []
            for cell in waiting:
                ended = attempt(cell, self._execution, watcher.begin(cell))
                if ended.kind == "busy":
                    busy.append(cell)
                else:
                    outcome.add(cell, ended, watcher)
            if len(busy) == len(waiting):
                watcher.wait(busy)
                time.sleep(base.PATIENCE)
            waiting = busy
        return outcome
