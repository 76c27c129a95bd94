"""One run after the other, in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.launch import base
from pfl_benchmark.launch.base import BatchReport, Launcher, Watcher, attempt
from pfl_benchmark.studies.grid import PlannedRun


class Sequential(Launcher):
    """A launcher without workers."""

    def __init__(self, execution: Execution) -> None:
        super().__init__(1, "on this machine", execution)

    def run(self, runs: Sequence[PlannedRun], watcher: Watcher) -> BatchReport:
        """As `Launcher.run`."""
        report, waiting = BatchReport(), list(runs)
        while waiting:
            busy = []
            for run in waiting:
                ended = attempt(run, self._execution, watcher.begin(run))
                if ended.kind == "busy":
                    busy.append(run)
                else:
                    report.add(run, ended, watcher)
            if len(busy) == len(waiting):
                watcher.wait(busy)
                time.sleep(base.PATIENCE)
            waiting = busy
        return report
