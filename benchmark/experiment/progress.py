"""How a run is doing, on standard error: a bar on a terminal, a few lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.status import Status

from pfl_benchmark.console.terminal import Console, duration, in_notebook, is_interactive, percent
from pfl_benchmark.records.measured import measured
from pfl_benchmark.render.forms import size

_LINES = 20  # at most about this many, where there is no bar


class RunProgress:
    """A `engine.rounds.Observer` for people; use it as a context manager around the run.

    It prints the headline when rounds begin, and shows `waiting` on a terminal until then. If the run
    `resumes`, there is a checkpoint, and the rounds found finished are its own.
    """

    def __init__(self, headline: str, waiting: str, resumes: bool) -> None:
        self._headline, self._resumes = headline, resumes
        self._console = Console(stderr=True)
        self._status: Status | None = None
        self._bar: Progress | None = None
        self._interactive = is_interactive(sys.stderr) or in_notebook()
        if self._interactive:
            self._status = self._console.status(waiting)
        self._bytes = 0
        self._accuracy: float | None = None
        self._of = self._shown = ""  # what was evaluated last

    def __enter__(self) -> RunProgress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
        if self._bar is not None:
            self._bar.stop()

    def start(self, rounds: int, done: int) -> None:
        """Say what is run and begin to count its rounds."""
        self._stop()  # what was counted before: a run may be followed twice, as a control run
        taken_over = " | its first rounds are taken over from a run that shares them"
        beginning = f" | resumes after round {done}" if self._resumes else taken_over
        print(self._headline + beginning * bool(done), file=sys.stderr, flush=True)
        self._rounds, self._done, self._printed, self._evaluated = rounds, done, done, done
        self._started = time.monotonic()
        if self._interactive:
            self._bar = Progress(
                TextColumn("round {task.completed}/{task.total}"),
                BarColumn(),
                TextColumn("{task.description}"),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=self._console,
                refresh_per_second=4,
            )
            self._bar.add_task("", total=rounds, completed=done)
            self._bar.start()

    def round(self, line: Mapping[str, Any]) -> None:
        """Take note of a finished round."""
        number = line["round"]
        self._bytes += line["bytes_up"] + line["bytes_down"] + line["bytes_broadcast"]
        self._accuracy = line.get("accuracy", self._accuracy)
        if "accuracy" in line:
            self._of = measured(line, self._of)
            sample = f", {count:,} clients" if (count := line.get("eval_clients")) else ""
            self._shown = self._of + sample
        if number <= self._done:
            return
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=number, description=self._figures(line))
        elif self._due(number, "accuracy" in line):
            self._printed = number
            if "accuracy" in line:
                self._evaluated = number
            print(self._plain(line), file=sys.stderr, flush=True)

    def _due(self, number: int, evaluated: bool) -> bool:
        """Evaluated rounds are worth a line; where they are rare, others are, too."""
        step = math.ceil(self._rounds / _LINES)
        waited = number - (self._evaluated if evaluated else self._printed)
        return number == self._rounds or waited >= (step if evaluated else 2 * step)

    def _figures(self, line: Mapping[str, Any]) -> str:
        accuracy = "" if self._accuracy is None else f"  accuracy {percent(self._accuracy)} ({self._shown})"
        return f"loss {line['loss']:.4f}{accuracy}  {size(self._bytes)}"

    def _plain(self, line: Mapping[str, Any]) -> str:
        number = line["round"]
        accuracy = f"accuracy {percent(line['accuracy'])} ({self._shown})  " if "accuracy" in line else ""
        spent = time.monotonic() - self._started
        left = spent / (number - self._done) * (self._rounds - number)
        rest = f", about {duration(left)} left" if number < self._rounds else ""
        return (
            f"round {number:{len(str(self._rounds))}}/{self._rounds}  {accuracy}loss {line['loss']:.4f}  "
            f"{size(self._bytes)}  {duration(spent)}{rest}"
        )
