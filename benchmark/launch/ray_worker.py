"""What runs on the machines of a Ray cluster; nothing here imports Ray.

A worker that can reach the results folder writes into it. One that cannot works in a folder of its own, and
sends the files of the record along: at checkpoints those that another worker needs to go on, at the end all.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import shutil
import socket
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.config.resolve import method_label
from benchmark.engine.files import write_bytes
from benchmark.engine.records import RunRecord
from benchmark.experiment.execution import Execution
from benchmark.launch.base import Ended, attempt, unavailable
from benchmark.launch.cores import use_share
from benchmark.launch.work import Report, Reporter
from benchmark.studies.grid import Cell

__all__ = ["Files", "RayWorker", "Survey", "record_files"]

# Of a record, in the order in which they may be written: what says that it is whole comes last.
_FILES = (
    "config.json", "rounds.jsonl", "clients.csv", "diagnostics.json", "summary.json", "failed.json",
    "checkpoint.pt", "done",
)  # fmt: skip
_RARELY = 4  # times the engine's seconds between checkpoints: between those that are sent


@dataclass(frozen=True)
class Survey:
    """What a worker finds where it is.

    Attributes:
        lacks: datasets that are not there, and why.
        shares: whether the results folder can be reached.
    """

    host: str
    pid: int
    lacks: Mapping[str, str]
    shares: bool


@dataclass(frozen=True)
class Files:
    """Content of files of the record of the worker's cell, by name."""

    content: Mapping[str, bytes]


class RayWorker:
    """Runs one cell at a time; `reports` is called at the same time from another thread.

    Args:
        variables: of the environment, to be set.
        token: names this worker's study, and its folder.
    """

    def __init__(self, variables: Mapping[str, str], token: str) -> None:
        os.environ.update(variables)
        use_share()
        self._scratch = Path(tempfile.gettempdir()) / f"pfl-benchmark-{token}"
        self._token = token
        self._reports: queue.SimpleQueue[Report | Files] = queue.SimpleQueue()

    def survey(self, cells: Sequence[Cell], data_dir: Path | None, marker: Path) -> Survey:
        """Look for the data of `cells`, and for the results folder by the file that marks it."""
        try:
            shares = marker.read_text(encoding="utf-8") == self._token
        except OSError:
            shares = False
        return Survey(socket.gethostname(), os.getpid(), unavailable(cells, data_dir, download=False), shares)

    def run(self, cell: Cell, execution: Execution, files: Mapping[str, bytes] | None) -> None:
        """Run a cell; `reports` tells how it goes.

        Args:
            files: what there is of its record, if the results folder cannot be reached from here.
        """
        try:
            if files is None:
                self._reports.put(attempt(cell, execution, Reporter(self._reports.put)))
            else:
                self._run_apart(cell, execution, files)
        except Exception as error:  # never leave the other side waiting
            problem = f"{type(error).__name__}: {error}"
            self._reports.put(Ended("failed", problem=problem, fault=traceback.format_exc()))

    def _run_apart(self, cell: Cell, execution: Execution, files: Mapping[str, bytes]) -> None:
        folder = RunRecord(self._scratch, cell.config, method_label(cell.config)).folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, content in files.items():
            write_bytes(folder / name, content)
        apart = dataclasses.replace(execution, results_dir=self._scratch)
        ended = attempt(cell, apart, _Sender(self._reports, folder, _RARELY * execution.checkpoint_seconds))

        def at_home(text: str) -> str:
            """With the path that the record will have in the end."""
            return text.replace(str(self._scratch), str(execution.results_dir))

        summary = ended.summary and {**ended.summary, "record": at_home(ended.summary["record"])}
        self._reports.put(Files(record_files(folder)))
        self._reports.put(dataclasses.replace(ended, summary=summary, problem=at_home(ended.problem)))
        shutil.rmtree(folder, ignore_errors=True)

    def reports(self, timeout: float) -> list[Report | Files]:
        """What there is to tell; waits for the first of it."""
        found: list[Report | Files] = []
        try:
            found.append(self._reports.get(timeout=timeout))
            while True:
                found.append(self._reports.get_nowait())
        except queue.Empty:
            return found

    def clean_up(self) -> None:
        """Remove the folder that workers of this study have used on this machine."""
        shutil.rmtree(self._scratch, ignore_errors=True)


class _Sender(Reporter):
    """Sends new checkpoints along with the rounds."""

    def __init__(self, reports: queue.SimpleQueue[Report | Files], folder: Path, pause: float) -> None:
        super().__init__(reports.put)
        self._reports, self._folder, self._pause = reports, folder, pause
        self._seen, self._sent = 0, 0.0  # nanoseconds of the last one's file; seconds when it was sent

    def round(self, line: Mapping[str, Any]) -> None:
        """A round is finished, and perhaps a checkpoint written, which goes first."""
        checkpoint = self._folder / "checkpoint.pt"
        if checkpoint.exists() and time.monotonic() - self._sent >= self._pause:
            written = checkpoint.stat().st_mtime_ns
            if written != self._seen:
                self._reports.put(Files(record_files(self._folder)))
                self._seen, self._sent = written, time.monotonic()
        super().round(line)


def record_files(folder: Path) -> dict[str, bytes]:
    """The files of a record, finished or not, in the order in which they are to be written."""
    return {name: path.read_bytes() for name in _FILES if (path := folder / name).exists()}
