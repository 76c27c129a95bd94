"""Workers elsewhere: giving runs to them, following their rounds, and what to do when one is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.rounds import Observer
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.estimate import Estimator
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import record_of
from pfl_benchmark.launch import base
from pfl_benchmark.launch.base import BatchReport, Ended, Launcher, Watcher
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.studies.grid import PlannedRun

ATTEMPTS = 3  # that a run gets when its workers are lost


class Job(Protocol):
    """A run that a worker has, such as a `concurrent.futures.Future`."""

    def done(self) -> bool:
        """Whether `result` would return, or raise, at once."""

    def result(self) -> Ended:
        """What `launch.base.attempt` returned; an exception means that the worker is lost."""


class WorkerPool(Launcher):
    """A launcher with workers; one of its own defines `submit` and `close`.

    Attributes:
        pause: seconds between looks at the tasks.
    """

    pause = 0.1

    def room(self, at_work: int) -> int:
        """How many runs `submit` takes now, beside those `at_work`."""
        return self.jobs - at_work

    @abstractmethod
    def submit(self, runs: Sequence[PlannedRun]) -> Sequence[Job]:
        """Have runs carried out by `attempt`, each in a process of its own; a task for each of them."""

    @abstractmethod
    def close(self) -> None:
        """End all workers, those at work as well; their checkpoints stay. Called after every `run`."""

    def check_loss(self) -> None:
        """Called when a worker is lost: raise UserError where it is known that others will be, too."""

    def run(self, runs: Sequence[PlannedRun], watcher: Watcher) -> BatchReport:
        try:
            return _Filling(self, self._execution, watcher).run(runs)
        finally:
            self.close()


@dataclass
class _Running:
    """A run that a worker has, and the rounds that its record is known to have."""

    run: PlannedRun
    task: Job
    observer: Observer
    lines: Path
    rounds: int = 0
    stamp: tuple[int, int] = (0, 0)

    def follow(self) -> bool:
        """Tell the observer of rounds that the record has got since (it does at checkpoints)."""
        try:
            found_at = self.lines.stat()
            stamp = (found_at.st_mtime_ns, found_at.st_size)  # clocks of file systems may be coarse
            if stamp == self.stamp:
                return False
            found = [json.loads(line) for line in self.lines.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError):
            return False
        for line in found[self.rounds :]:
            self.observer.round(line)
        self.rounds, self.stamp = len(found), stamp
        return True


class _Filling:
    """Runs runs on a pool, by the rules of `launch.base.Launcher`."""

    def __init__(self, pool: WorkerPool, execution: Execution, watcher: Watcher) -> None:
        self._pool, self._root, self._watcher = pool, execution.results_dir, watcher
        self._estimator = Estimator((), dataclasses.replace(execution, device="cpu", executor="loop"))
        self._report = BatchReport()
        self._queue: list[PlannedRun] = []
        self._busy: list[PlannedRun] = []  # another process is at them
        self._looked = 0.0  # when one of them was last found busy
        self._running: list[_Running] = []
        self._losses: Counter[str] = Counter()
        self._proved = False  # that workers can be started at all

    def run(self, runs: Sequence[PlannedRun]) -> BatchReport:
        """Run all of them; UserError where records cannot be written or workers cannot be started."""
        self._queue = list(runs)
        while self._queue or self._busy or self._running:
            self._submit()
            if self._running:
                self._collect()
            else:
                self._watcher.wait(self._busy)
                time.sleep(base.PATIENCE)
            if not self._queue and time.monotonic() - self._looked >= base.PATIENCE:
                self._queue, self._busy = self._busy, []
        return self._report

    # -- giving work ------------------------------------------------------------------------------------

    def _submit(self) -> None:
        chosen: list[PlannedRun] = []
        at_work = [(one.run.config, one.rounds) for one in self._running]
        room = self._pool.room(len(self._running))
        while self._queue and len(chosen) < room:
            chosen.append(self._next(at_work))
            at_work.append((chosen[-1].config, 0))
        tasks = self._pool.submit(chosen) if chosen else ()
        for run, task in zip(chosen, tasks, strict=True):
            observer = self._watcher.begin(run)
            folder = record_of(resolve(run.config), self._root).folder
            running = _Running(run, task, observer, folder / "rounds.jsonl")
            observer.start(run.config.rounds, 0)
            if (folder / "checkpoint.pt").exists():
                running.follow()
            self._running.append(running)

    def _next(self, at_work: Sequence[tuple[RunConfig, int]]) -> PlannedRun:
        """Take the first run in line, but rather one whose common beginnings nobody is just training."""
        begun = {name for config, done in at_work for name in self._beginnings(config, done)}
        alone = (n for n, run in enumerate(self._queue) if not begun & self._beginnings(run.config))
        return self._queue.pop(next(alone, 0))

    def _beginnings(self, config: RunConfig, done: int = 0) -> set[str]:
        """What a run still has to train, or to find, of beginnings that others share."""
        with contextlib.suppress(UserError):  # which the run itself will meet
            return {name for name, end in self._estimator.beginnings(config).items() if done < end}
        return set()

    # -- hearing ----------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Take what has ended; wait a little if nothing has."""
        ended = [one for one in self._running if one.task.done()]
        for one in self._running:
            self._proved |= one.follow()
        if not ended:
            time.sleep(self._pool.pause)
        for one in ended:
            self._running.remove(one)
            try:
                result = one.task.result()
            except UserError:
                raise
            except Exception as error:
                self._lost(one, " ".join(str(error).split()) or type(error).__name__)
            else:
                self._proved = True
                self._end(one.run, result)

    def _end(self, run: PlannedRun, ended: Ended) -> None:
        if ended.kind == "busy":
            self._busy.append(run)
            self._looked = time.monotonic()
        else:
            self._report.add(run, ended, self._watcher)

    def _lost(self, one: _Running, how: str) -> None:
        """A worker is lost; its run goes on from its checkpoint elsewhere, but not for ever."""
        self._pool.check_loss()
        if not self._proved and not one.lines.parent.exists():
            raise UserError(
                f"a worker was lost before it had begun ({how}); see its messages above, lower --jobs if "
                "memory has run out, or run without --jobs"
            )
        self._losses[one.run.config.hash] += 1
        count = self._losses[one.run.config.hash]
        if count < ATTEMPTS:
            self._watcher.note(
                f"the worker at {one.run.title} was lost ({how}); another goes on from its checkpoint"
            )
            self._queue.insert(0, one.run)
        else:
            problem = f"{count} workers were lost at it ({how}); lower --jobs if memory has run out"
            self._end(one.run, Ended("failed", problem=problem))
