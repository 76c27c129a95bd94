"""One cell after the other, in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmark.errors import UserError
from benchmark.experiment.execution import Execution
from benchmark.launch import base
from benchmark.launch.base import OnThisMachine, Outcome, Watcher, attempt
from benchmark.studies.grid import Cell

__all__ = ["Sequential"]


class Sequential(OnThisMachine):
    """A `benchmark.launch.base.Launcher` without workers."""

    jobs = 1
    place = "on this machine"

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
