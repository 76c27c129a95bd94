"""How filling is going, on standard error: bars on a terminal, a line a run elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from pfl_benchmark.console.terminal import Console, duration, is_interactive, percent
from pfl_benchmark.experiment.estimate import together
from pfl_benchmark.studies.grid import PlannedRun

_EVERY = 60.0  # seconds between lines about one run, where there is no bar


class RunsProgress:
    """A `launch.base.Watcher` for people; estimates are seconds by the hash of a run's configuration."""

    def __init__(self, runs: Sequence[PlannedRun], estimates: Mapping[str, float], jobs: int = 1) -> None:
        self._total, self._jobs = len(runs), jobs
        self._left = {run.config.hash: estimates[run.config.hash] for run in runs}
        self._expected = self._spent = 0.0  # seconds of the runs that have ended
        self._count = self._waiting = 0
        self._said = time.monotonic()
        self._running: dict[str, _Row] = {}
        self._stream = sys.stderr
        self.bars: Progress | None = None
        if is_interactive(sys.stderr):
            console = Console(stderr=True)
            console.file = sys.stderr  # stays the terminal while a run's own messages are held back
            self.bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                TextColumn("{task.fields[more]}"),
                console=console,
                refresh_per_second=4,
                redirect_stderr=False,
            )
            self._runs = self.bars.add_task("cells", total=self._total, more="")

    def __enter__(self) -> RunsProgress:
        if self.bars is not None:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        for row in self._running.values():
            row.close()
        if self.bars is not None:
            self.bars.stop()

    def begin(self, run: PlannedRun) -> _Row:
        """A run is begun."""
        if run.config.hash in self._running:
            self._running[run.config.hash].close()
        row = self._running[run.config.hash] = _Row(self, run)
        return row

    def end(self, run: PlannedRun, summary: Mapping[str, Any] | None, problem: str) -> None:
        """A run has ended."""
        row = self._running.pop(run.config.hash, None)
        seconds = 0.0
        if row is not None:
            row.close()
            seconds = time.monotonic() - row.started
        self._count += 1
        self._expected += self._left.pop(run.config.hash, 0.0)
        self._spent += seconds
        result = f"accuracy {percent(summary['accuracy'])}" if summary else f"no result: {problem}"
        left = f"about {duration(self._seconds_left())} left" if self._count < self._total else ""
        self.note(
            f"[{self._count:{len(str(self._total))}}/{self._total}] {run.title}: {result}  "
            f"({duration(seconds)}{', ' if left else ''}{left})"
        )
        for warning in summary.get("warnings", ()) if summary else ():
            self.note(f"    warning: {warning}")
        if self.bars is not None:
            self.bars.update(self._runs, completed=self._count, more=left)

    def wait(self, runs: Sequence[PlannedRun]) -> None:
        """Another process is at all that is left."""
        if time.monotonic() - self._said > _EVERY or self._waiting != len(runs):
            self._waiting, self._said = len(runs), time.monotonic()
            self.note(f"waiting for another process, which is at {len(runs)} of these runs")

    def _seconds_left(self) -> float:
        running = [self._left[name] * row.share_left for name, row in self._running.items()]
        queued = [seconds for name, seconds in self._left.items() if name not in self._running]
        # Finished runs tell how far the estimates are off.
        factor = self._spent / self._expected if self._expected else 1.0
        return together([*running, *queued], self._jobs) * factor

    def note(self, text: str) -> None:
        """Print something worth a line."""
        if self.bars is not None:
            self.bars.console.print(text)
        else:
            print(text, file=self._stream, flush=True)


class _Row:
    """A `engine.rounds.Observer`: one run that is running, and its bar."""

    def __init__(self, display: RunsProgress, run: PlannedRun) -> None:
        self._display, self._cell = display, run
        self._rounds, self._round = 1, 0
        self.started = self._said = time.monotonic()
        self._bar: TaskID | None = None

    @property
    def share_left(self) -> float:
        """The share of its rounds that it has still before it."""
        return max(0.0, 1 - self._round / self._rounds)  # a budget in bytes may give more

    def start(self, rounds: int, done: int) -> None:
        """Its run begins."""
        self._rounds = rounds
        if self._display.bars is not None:
            title = f"  {self._cell.title}"
            self._bar = self._display.bars.add_task(title, total=rounds, completed=done, more="")

    def round(self, line: Mapping[str, Any]) -> None:
        """A round of it is finished."""
        self._round = line["round"]
        accuracy = f"accuracy {percent(line['accuracy'])}" if "accuracy" in line else ""
        if self._bar is not None and self._display.bars is not None:
            self._display.bars.update(self._bar, completed=self._round)
            if accuracy:
                self._display.bars.update(self._bar, more=accuracy)
        elif time.monotonic() - self._said > _EVERY:
            self._said = time.monotonic()
            self._display.note(
                f"    {self._cell.title}: round {self._round}/{self._rounds} {accuracy}".rstrip()
            )

    def close(self) -> None:
        """Take its bar away."""
        if self._bar is not None and self._display.bars is not None:
            self._display.bars.remove_task(self._bar)
            self._bar = None
