"""What runs on the machines of a Ray cluster; nothing here imports Ray.

Where all machines see the results folder, tasks write into it. Otherwise they work in a folder of their own
and send the files of the record along: at checkpoints those that another worker needs to go on, at the end
all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from benchmark.engine.files import write_bytes
from benchmark.experiment.execution import Execution
from benchmark.experiment.runner import record_of
from benchmark.launch.base import Ended, Quiet, attempt, unavailable
from benchmark.launch.cores import use_share
from benchmark.studies.grid import Cell

__all__ = ["Survey", "clean_up", "look", "record_files", "work"]

_TO_GO_ON = ("config.json", "rounds.jsonl", "checkpoint.pt")
# In the order in which they may be written: what says that the record is whole comes last.
_FILES = (*_TO_GO_ON, "clients.csv", "diagnostics.json", "summary.json", "failed.json", "done")
_RARELY = 4  # times the engine's seconds between checkpoints: between those that are sent
_LEAST = 0.1  # seconds between looks for a checkpoint


@dataclass(frozen=True)
class Survey:
    """What is on a machine.

    Attributes:
        lacks: datasets that are not there, and why.
        shares: whether the results folder can be reached.
    """

    host: str
    lacks: Mapping[str, str]
    shares: bool


def look(cells: Sequence[Cell], data_dir: Path | None, marker: Path) -> Survey:
    """Look for the data of `cells`, and for the results folder by the file that marks it."""
    return Survey(socket.gethostname(), unavailable(cells, data_dir, download=False), marker.exists())


def work(
    cell: Cell,
    execution: Execution,
    files: Mapping[str, bytes] | None,
    marker: Path,
    variables: Mapping[str, str],
) -> Iterator[Mapping[str, bytes] | Ended]:
    """Run a cell: files of its record as they come, if the results folder is out of reach; last how it ended.

    Args:
        files: what there is of its record; None: the results folder can be reached.
        marker: the file that marks the results folder; its name is the study's.
        variables: of the environment, to be set.
    """
    os.environ.update(variables)
    if files is None:
        use_share()
        yield attempt(cell, execution, Quiet())
        return
    scratch = _scratch(marker)
    folder = record_of(cell.config, scratch).folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        write_bytes(folder / name, content)
    apart = dataclasses.replace(execution, results_dir=scratch)
    checkpoint, seen = folder / "checkpoint.pt", 0
    pause = max(_LEAST, _RARELY * execution.checkpoint_seconds)
    with ThreadPoolExecutor(1, initializer=use_share) as thread:
        running = thread.submit(attempt, cell, apart, Quiet())
        while wait([running], timeout=pause).not_done:
            with contextlib.suppress(FileNotFoundError):  # none yet, or the run ends just now
                if (written := checkpoint.stat().st_mtime_ns) != seen:
                    yield record_files(folder, _TO_GO_ON)
                    seen = written

    def at_home(text: str) -> str:
        """With the path that the record will have in the end."""
        return text.replace(str(scratch), str(execution.results_dir))

    ended = running.result()
    summary = ended.summary and {**ended.summary, "record": at_home(ended.summary["record"])}
    yield record_files(folder)
    shutil.rmtree(folder, ignore_errors=True)
    yield dataclasses.replace(ended, summary=summary, problem=at_home(ended.problem))


def clean_up(marker: Path) -> None:
    """Remove the folder that the study's tasks have used on this machine."""
    shutil.rmtree(_scratch(marker), ignore_errors=True)


def record_files(folder: Path, names: Sequence[str] = _FILES) -> dict[str, bytes]:
    """The files of a record, finished or not, in the order in which they are to be written."""
    return {name: path.read_bytes() for name in names if (path := folder / name).exists()}


def _scratch(marker: Path) -> Path:
    return Path(tempfile.gettempdir()) / f"pfl-benchmark-{marker.name}"
