"""Giving cells to workers, hearing what becomes of them, and what to do when one dies."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmark.engine.config import RunConfig
from benchmark.engine.rounds import Observer
from benchmark.errors import UserError
from benchmark.experiment.estimate import Estimator
from benchmark.experiment.execution import Execution
from benchmark.launch import base
from benchmark.launch.base import Ended, Outcome, Watcher
from benchmark.launch.work import Died, Report, Round, Started
from benchmark.studies.grid import Cell

__all__ = ["Crew", "Foreman"]

ATTEMPTS = 3  # that a cell gets when its workers die


class Crew(Protocol):
    """Workers, each at a numbered place; a dead one is replaced at the next cell that its place is sent."""

    def places(self) -> Sequence[int]:
        """Where there are workers, or can be at once."""

    def can(self, place: int, cell: Cell) -> bool:
        """Whether the worker there has the data of a cell."""

    def hopeless(self, cell: Cell) -> bool:
        """Whether no worker that is there or to come has the data of a cell."""

    def send(self, place: int, cell: Cell) -> None:
        """Have a cell run; only after the one before has ended or its worker has died."""

    def reports(self, timeout: float) -> list[tuple[int, Report]]:
        """What workers tell, by place; waits up to `timeout` seconds for the first word."""


@dataclass
class _Task:
    """A cell in the hands of a worker, and the last round that it is known to have finished."""

    cell: Cell
    observer: Observer
    round: int = 0


class Foreman:
    """Runs cells on a crew, by the rules of `benchmark.launch.base.Launcher`."""

    def __init__(self, crew: Crew, execution: Execution, watcher: Watcher) -> None:
        self._crew, self._watcher = crew, watcher
        self._estimator = Estimator((), dataclasses.replace(execution, device="cpu", executor="loop"))
        self._outcome = Outcome()
        self._queue: list[Cell] = []
        self._busy: list[Cell] = []  # another process is at them
        self._looked = 0.0  # when one of them was last found busy
        self._running: dict[int, _Task] = {}
        self._deaths: Counter[str] = Counter()
        self._proved = False  # that workers can be started at all

    def run(self, cells: Sequence[Cell]) -> Outcome:
        """Run all of them.

        Raises:
            UserError: records cannot be written, or workers cannot be started.
        """
        self._queue = list(cells)
        while self._queue or self._busy or self._running:
            self._assign()
            if self._queue or self._running:
                for place, report in self._crew.reports(base.PATIENCE):
                    self._take(place, report)
            elif self._busy:
                self._watcher.wait(self._busy)
                time.sleep(base.PATIENCE)
            rested = time.monotonic() - self._looked >= base.PATIENCE
            if not self._queue and rested:
                self._queue, self._busy = self._busy, []
        return self._outcome

    # -- giving work ------------------------------------------------------------------------------------

    def _assign(self) -> None:
        for place in self._crew.places():
            if place in self._running or (cell := self._next(place)) is None:
                continue
            self._queue.remove(cell)
            self._running[place] = _Task(cell, self._watcher.begin(cell))
            self._crew.send(place, cell)
        if not self._running:
            for cell in [cell for cell in self._queue if self._crew.hopeless(cell)]:
                problem = f"no worker that is left has the data of '{cell.config.dataset}'"
                self._queue.remove(cell)
                self._end(cell, Ended("failed", problem=problem))

    def _next(self, place: int) -> Cell | None:
        """The first cell in line, but rather one whose common beginnings nobody is just training."""
        able = [cell for cell in self._queue if self._crew.can(place, cell)]
        if not able or not self._running:
            return able[0] if able else None
        tasks = self._running.values()
        begun = {name for task in tasks for name in self._beginnings(task.cell.config, task.round)}
        return next((cell for cell in able if not begun & self._beginnings(cell.config)), able[0])

    def _beginnings(self, config: RunConfig, done: int = 0) -> set[str]:
        """What a run still has to train, or to find, of beginnings that others share."""
        with contextlib.suppress(UserError):  # which the run itself will meet
            return {name for name, end in self._estimator.beginnings(config).items() if done < end}
        return set()

    # -- hearing ----------------------------------------------------------------------------------------

    def _take(self, place: int, report: Report) -> None:
        if isinstance(report, Died):
            self._bury(self._running.pop(place, None), report.how)
            return
        self._proved = True
        task = self._running[place]
        if isinstance(report, Started):
            task.observer.start(report.rounds, report.done)
        elif isinstance(report, Round):
            task.round = report.line["round"]
            task.observer.round(report.line)
        else:
            del self._running[place]
            self._end(task.cell, report)

    def _end(self, cell: Cell, ended: Ended) -> None:
        if ended.kind == "stop":
            raise UserError(ended.problem)
        if ended.kind == "busy":
            self._busy.append(cell)
            self._looked = time.monotonic()
        else:
            self._outcome.add(cell, ended, self._watcher)

    def _bury(self, task: _Task | None, how: str) -> None:
        """A worker is dead; its cell goes on from its checkpoint elsewhere, but not for ever."""
        if not self._proved:
            raise UserError(
                f"a worker {how} before it had begun; see its messages above, lower --jobs if memory has run "
                "out, or run without --jobs"
            )
        if task is None:
            return
        self._deaths[task.cell.config.hash] += 1
        count = self._deaths[task.cell.config.hash]
        if count < ATTEMPTS:
            self._watcher.note(f"the worker at {task.cell.title} {how}; another goes on from its checkpoint")
            self._queue.insert(0, task.cell)
        else:
            problem = (
                f"{count} workers have died at it, the last one {how}; lower --jobs if memory has run out"
            )
            self._end(task.cell, Ended("failed", problem=problem))
