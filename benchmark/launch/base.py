"""What all launchers have in common: their interface, and how one run is run and what may become of it."""

from __future__ import annotations

import contextlib
import io
import traceback
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.engine.exits import ENDING
from pfl_benchmark.engine.rounds import Observer
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import RAY, Execution
from pfl_benchmark.experiment.runner import run_judged
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.records.same_data import Source, source_of
from pfl_benchmark.records.writer import Busy
from pfl_benchmark.resolve.plugins import load_plugins
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.studies.grid import PlannedRun

PATIENCE = 2.0  # seconds between looks at runs that another process is making


class Watcher(Protocol):
    """Watches runs being filled: a progress display."""

    def begin(self, run: PlannedRun) -> Observer:
        """A run is begun (perhaps not for the first time); what is returned watches its rounds."""

    def end(self, run: PlannedRun, summary: Mapping[str, Any] | None, problem: str) -> None:
        """A run has ended: with its summary, or with a problem and no record."""

    def wait(self, runs: Sequence[PlannedRun]) -> None:
        """Only runs are left that another process is at."""

    def note(self, text: str) -> None:
        """Something worth a line, such as the death of a worker."""


@dataclass(frozen=True)
class Ended:
    """How an attempt at a run has ended.

    Attributes:
        kind: ``busy``: another process is at this very run; ``stop``: records cannot be written.
        fault: traceback, if the problem is a fault of the program.
    """

    kind: Literal["done", "failed", "busy", "stop"]
    summary: Mapping[str, Any] | None = None
    problem: str = ""
    fault: str = ""


@dataclass
class BatchReport:
    """What has become of the cells.

    Attributes:
        failed: runs without a record, and why.
        faults: tracebacks of those that failed by a fault of the program.
    """

    done: list[PlannedRun] = field(default_factory=list)
    failed: list[tuple[PlannedRun, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, run: PlannedRun, ended: Ended, watcher: Watcher) -> None:
        """Enter a run that is done or has failed, and tell the watcher.

        Raises:
            UserError: records cannot be written.
        """
        if ended.kind == "stop":
            raise UserError(ended.problem)
        if ended.summary is not None:
            self.done.append(run)
        else:
            self.failed.append((run, ended.problem))
        if ended.fault:
            self.faults.append(ended.fault)
        watcher.end(run, ended.summary, ended.problem)


@dataclass(frozen=True)
class Options:
    """What a launcher is made from.

    Attributes:
        jobs: runs at once; 0: as many as fit (``auto``), None: the launcher's own default.
        execution: how each run is run.
        runs: what is to be done.
        flags: values of the launcher's own flags, by name (``address`` for ``--address``).
    """

    jobs: int | None
    execution: Execution
    runs: Sequence[PlannedRun]
    flags: Mapping[str, Any] = field(default_factory=dict)


class Launcher(ABC):
    """Carries out runs somewhere, by default on this machine; a context manager, which holds its workers.

    Attributes:
        jobs: runs at once.
        place: where they run, as it follows "about 3:20".
    """

    def __init__(self, jobs: int, place: str, execution: Execution) -> None:
        self.jobs, self.place, self._execution = jobs, place, execution

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def unavailable(self, runs: Sequence[PlannedRun], download: bool = True) -> dict[Source, str]:
        """The sources of `runs` that cannot be had where these would run, and why not."""
        return unavailable(runs, self._execution.data_dir, download)

    @abstractmethod
    def run(self, runs: Sequence[PlannedRun], watcher: Watcher) -> BatchReport:
        """Run `runs`, by and large in this order; one that fails does not stop the others.

        A run that another process is at comes last: it is waited for, and taken over if that process ends
        without finishing it.

        Raises:
            UserError: records cannot be written (permission, space): nothing else could succeed either.
        """


class Ending(Quiet):
    """An observer that ends a run although the signal has come where Python swallows exceptions."""

    def round(self, line: Mapping[str, Any]) -> None:
        if ENDING.is_set():
            raise SystemExit


def refuse_ray(options: Options, what: str) -> None:
    """Refuse ``--executor ray`` for runs at once, which would wait for each other."""
    if options.execution.executor == RAY:
        raise UserError(
            f"--executor ray: it takes all machines of the cluster for one run, and not {what}; drop it, or "
            "run one at a time with --launcher local --jobs 1"
        )


def attempt(run: PlannedRun, execution: Execution, observer: Observer) -> Ended:
    """Run a run here and now; SystemExit where this process was told to end (`ENDING`)."""
    try:
        load_plugins()  # which a new process has not
        # A method's notes are in its summary; printed for every run they would drown the progress.
        with contextlib.redirect_stderr(io.StringIO()):
            return Ended("done", run_judged(resolve(run.config), execution, observer))
    except UserError as error:
        problem = " ".join(str(error).splitlines())
        if isinstance(error, Busy):
            return Ended("busy", problem=problem)
        return Ended("stop" if isinstance(error.__cause__, OSError) else "failed", problem=problem)
    except Exception as error:
        problem = " ".join(f"{type(error).__name__}: {error}".splitlines())
        return Ended("failed", problem=problem, fault=traceback.format_exc())


def unavailable(
    runs: Sequence[PlannedRun], data_dir: Path | None, download: bool = True
) -> dict[Source, str]:
    """The sources of `runs` that cannot be had on this machine, and why not."""
    problems = {}
    for name, embedding in dict.fromkeys(source_of(run.config) for run in runs):
        try:
            datasets.load(name, data_dir, download=download, embedding=embedding)
        except UserError as error:
            problems[name, embedding] = str(error)
    return problems
