"""What runs on the machines of a Ray cluster; nothing here imports Ray.

Machines need not see the results folder: a task works in a folder of its own machine and sends the files of
its record at checkpoints and at the end.
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
from pathlib import Path

from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.processes import use_share
from pfl_benchmark.experiment.runner import record_of
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.launch.base import Ended, attempt, unavailable
from pfl_benchmark.records.files import write_bytes
from pfl_benchmark.records.rows import PATTERN
from pfl_benchmark.records.same_data import Source
from pfl_benchmark.resolve.plugins import load_plugins
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.studies.grid import PlannedRun

Files = Mapping[str, bytes]

# In the order in which they may be written: what says that the record is whole comes last.
_CHECKPOINT = "checkpoint.pt"
_FILES = ["config.json", "rounds.jsonl", _CHECKPOINT, "clients.csv", "diagnostics.json"]
_FILES += ["summary.json", "failed.json", "done"]
_RARELY = 4  # times the engine's seconds between checkpoints: between those that are sent
_LEAST = 0.1  # seconds between looks for a checkpoint


def look(
    runs: Sequence[PlannedRun], data_dir: Path | None, variables: Mapping[str, str]
) -> tuple[str, dict[Source, str]]:
    """The name of this machine, and the sources of `runs` that are not on it, with the reason."""
    os.environ.update(variables)
    load_plugins()
    return socket.gethostname(), unavailable(runs, data_dir, download=False)


def work(
    run: PlannedRun, execution: Execution, files: Files, scratch: str, variables: Mapping[str, str]
) -> Iterator[Files | Ended]:
    """Carry out a run: the files of its record as they come, last how it ended.

    `files` are what there is of its record, `scratch` names the folder that the tasks on a machine share.
    """
    os.environ.update(variables)
    load_plugins()
    execution = dataclasses.replace(execution, results_dir=_folder(scratch))
    folder = record_of(resolve(run.config), execution.results_dir).folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_files(folder, files)
    pause, sent = max(_LEAST, _RARELY * execution.checkpoint_seconds), 0
    with ThreadPoolExecutor(1, initializer=use_share) as thread:
        running = thread.submit(attempt, run, execution, Quiet())
        while wait([running], timeout=pause).not_done:
            with contextlib.suppress(FileNotFoundError):  # no checkpoint yet, or the run ends just now
                if (written := (folder / _CHECKPOINT).stat().st_mtime_ns) != sent:
                    yield read_files(folder)
                    sent = written
    yield read_files(folder)
    shutil.rmtree(folder, ignore_errors=True)
    yield running.result()


def clean_up(scratch: str) -> None:
    """Remove the folder that the tasks have shared on this machine."""
    shutil.rmtree(_folder(scratch), ignore_errors=True)


def read_files(folder: Path) -> Files:
    """The files of a record, finished or not; what says that it is whole is read first.

    Rows that a checkpoint names stay what they are until the next one; where that comes meanwhile, its
    checksums tell, and rounds are trained again.
    """
    files = {name: path.read_bytes() for name in reversed(_FILES) if (path := folder / name).exists()}
    named = sorted(folder.glob(PATTERN)) if _CHECKPOINT in files else []
    return files | {path.name: path.read_bytes() for path in named}


def write_files(folder: Path, files: Files) -> None:
    """Write files of a record; those of an earlier attempt go."""
    rows = [name for name in files if name not in _FILES]
    for path in folder.glob(PATTERN):
        if path.name not in rows:
            path.unlink(missing_ok=True)
    for name in (*rows, *_FILES):
        if name in files:
            write_bytes(folder / name, files[name])
    for name in ("failed.json", _CHECKPOINT):
        if name not in files:
            (folder / name).unlink(missing_ok=True)


def _folder(scratch: str) -> Path:
    return Path(tempfile.gettempdir()) / f"pfl-benchmark-{scratch}"
