"""How filling is going, on standard error: bars on a terminal, a line a cell elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn

from benchmark.studies.grid import Cell
from benchmark.terminal import Console, duration, is_interactive, percent

__all__ = ["CellProgress"]

_EVERY = 60.0  # seconds between lines about one cell, where there is no bar


class CellProgress:
    """A `benchmark.studies.fill.Watcher` and `benchmark.engine.rounds.Observer` for people.

    Args:
        estimates: expected seconds of every cell, by the hash of its configuration.
    """

    def __init__(self, cells: Sequence[Cell], estimates: Mapping[str, float]) -> None:
        self._estimates, self._total = estimates, len(cells)
        self._left = sum(estimates[cell.config.hash] for cell in cells)
        self._expected = self._spent = 0.0  # seconds of the cells that have ended
        self._count = self._waiting = 0
        self._stream = sys.stderr
        self._bars: Progress | None = None
        if is_interactive(sys.stderr):
            console = Console(stderr=True)
            console.file = sys.stderr  # stays the terminal while a run's own messages are held back
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                TextColumn("{task.fields[more]}"),
                console=console,
                refresh_per_second=4,
                redirect_stderr=False,
            )
            self._cells = self._bars.add_task("cells", total=self._total, more="")
            self._rounds = self._bars.add_task("", total=1, visible=False, more="")

    def __enter__(self) -> CellProgress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.update(self._rounds, visible=False)
            self._bars.stop()

    # -- cells ------------------------------------------------------------------------------------------

    def begin(self, cell: Cell) -> CellProgress:
        """A cell is begun."""
        self._cell, self._started, self._said = cell, time.monotonic(), time.monotonic()
        return self

    def end(self, cell: Cell, summary: dict[str, Any] | None, problem: str) -> None:
        """A cell has ended."""
        seconds, expected = time.monotonic() - self._started, self._estimates[cell.config.hash]
        self._count += 1
        self._left -= expected
        self._expected += expected
        self._spent += seconds
        result = f"accuracy {percent(summary['accuracy'])}" if summary else f"FAILED: {problem}"
        left = f", about {duration(self._seconds_left())} left" if self._count < self._total else ""
        self._say(
            f"[{self._count:{len(str(self._total))}}/{self._total}] {cell.title}: {result}  "
            f"({duration(seconds)}{left})"
        )
        for warning in summary.get("warnings", ()) if summary else ():
            self._say(f"    warning: {warning}")
        if self._bars is not None:
            more = f"about {duration(self._seconds_left())} left" if self._count < self._total else ""
            self._bars.update(self._cells, completed=self._count, more=more)
            self._bars.update(self._rounds, visible=False)

    def wait(self, cells: Sequence[Cell]) -> None:
        """Another process is at all that is left."""
        if time.monotonic() - self._said > _EVERY or self._waiting != len(cells):
            self._waiting, self._said = len(cells), time.monotonic()
            self._say(f"waiting for another process, which is at {len(cells)} of these cells")

    def _seconds_left(self) -> float:
        # Finished cells tell how far the estimates are off.
        return self._left * (self._spent / self._expected if self._expected else 1.0)

    # -- rounds of the current cell ---------------------------------------------------------------------

    def start(self, rounds: int, done: int) -> None:
        """The run of the current cell begins."""
        self._run_rounds = rounds
        if self._bars is not None:
            self._bars.update(
                self._rounds,
                total=rounds,
                completed=done,
                visible=True,
                more="",
                description=f"  {self._cell.title}",
            )

    def round(self, line: Mapping[str, Any]) -> None:
        """A round of the current cell is finished."""
        accuracy = f"accuracy {percent(line['accuracy'])}" if "accuracy" in line else ""
        if self._bars is not None:
            self._bars.update(self._rounds, completed=line["round"])
            if accuracy:
                self._bars.update(self._rounds, more=accuracy)
        elif time.monotonic() - self._said > _EVERY:
            self._said = time.monotonic()
            self._say(f"    {self._cell.title}: round {line['round']}/{self._run_rounds} {accuracy}".rstrip())

    def _say(self, text: str) -> None:
        if self._bars is not None:
            self._bars.console.print(text)
        else:
            print(text, file=self._stream, flush=True)
