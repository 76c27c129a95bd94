"""What runs leave behind: one folder a run, readable without this program.

::

    <results-dir>/store.json                 record format of the folder
    <results-dir>/<slug>-<hash>/
        config.json      the configuration, the split's checksum and sizes
        rounds.jsonl     one line a round: bytes, samples, seconds, loss, accuracy when evaluated
        clients.csv      per-client final results
        predictions.npz, models.safetensors   if they were asked for (`records.outputs`)
        diagnostics.json what the method itself has to say (only if it has)
        summary.json     headline figures, cost, environment (of each stretch of rounds, if it changed)
        done             present if the run is finished: the seal of the files above (`records.seal`)
        checkpoint.pt    state after some round, while the run is not finished
        checkpoint-*     what clients keep, as far as it is not in memory; what checkpoint.pt names
        verified.json    whether later code gives the same, if that was asked (`experiment.verify`)
        failed.json      why a run stopped, if its training diverged, and versions and hardware

A finished run is never run again; tables and figures are made from these files only.
`records.record` reads and checks them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import re
import shutil
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.errors import UserError, why
from pfl_benchmark.records.files import load_tensors, read_json, save_tensors, write_json, write_text
from pfl_benchmark.records.metrics import ClientMetrics
from pfl_benchmark.records.rows import PATTERN
from pfl_benchmark.records.seal import DIAGNOSTICS, seal

FORMAT = 1  # of the record files; a store of another format is refused, never mixed
FOLDER = re.compile(r".+-[0-9a-f]{10}")  # names of record folders; of those set aside the end is another
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)  # a file system without locks
_TEMPORARY = ".*-????????.tmp"  # what `records.files` writes before it renames
_LEFT = ("checkpoint*.pt", PATTERN, ".lock")  # by processes that were killed after a run was finished
_LONG_AGO = 3600.0  # seconds after which nobody is still writing a file
_SECONDS_TO_LOCK = 0.2  # its last holder may be removing the file just now


class Busy(UserError):
    """Another process is at this very run."""


def refuse_record(root: Path) -> None:
    """Raise UserError for the folder of one run, where a results folder is wanted."""
    if (root / "config.json").exists():
        raise UserError(
            f"{root} is the record of one run; give the results folder that holds it, {root.parent}"
        )


def open_store(root: Path) -> Path:
    """Prepare a results folder and return it; UserError for a record, and for records of another format."""
    refuse_record(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot use results folder {root}: {why(error)}; choose another --results-dir"
        ) from error
    marker = root / "store.json"
    if marker.exists():
        try:
            found = read_json(marker).get("format", "unknown")
        except (OSError, ValueError):
            found = "unknown"
        if found != FORMAT:
            raise UserError(
                f"results folder {root} holds records of format {found}; this version writes {FORMAT}; "
                "choose another --results-dir, or use the version that wrote them"
            )
    else:
        write_json(marker, {"format": FORMAT})
    _remove_leftovers(root)
    return root


def _remove_leftovers(root: Path) -> None:
    """Remove what killed processes have left: old temporary files, and what no finished record needs."""
    now, finished = time.time(), [done.parent for done in root.glob("*/done")]
    left = [path for below in ("", "*/", ".cache/report/") for path in root.glob(below + _TEMPORARY)]
    needless = [p for f in finished if FOLDER.fullmatch(f.name) for name in _LEFT for p in f.glob(name)]
    for path in (*needless, *left):
        with contextlib.suppress(OSError):  # another process may be removing it as well
            if path in needless or now - path.stat().st_mtime > _LONG_AGO:
                path.unlink()


class RunRecord:
    """The folder of one run.

    Args:
        method: readable name of the method and its variant, the beginning of the folder's name.
    """

    def __init__(self, root: Path, config: RunConfig, method: str) -> None:
        self.config, self._method = config, method
        self.folder = root / f"{method}-{slug(config)}-{config.hash}"
        # It vanishes with its process; a lock that is only a file would outlive a killed one.
        self._lock = FileLock(self.folder / ".lock", fallback_to_soft=False, thread_local=False)

    @property
    def checkpoint(self) -> Path:
        """The file of the last checkpoint, if there is one."""
        return self.folder / "checkpoint.pt"

    @property
    def done(self) -> bool:
        return (self.folder / "done").exists()

    # -- one process a run ----------------------------------------------------------------------

    def acquire(self) -> None:
        """Take the run for this process; `Busy` where another is at it, UserError: it cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=_SECONDS_TO_LOCK)
        except Timeout:
            raise Busy(
                f"another process is running this very run ({self.folder.name}); wait for it or stop it"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise UserError(
                    f"cannot write to {self.folder}: {why(error)}; choose another --results-dir"
                ) from error
            self._unlink_lock()
        for path in self.folder.glob(_TEMPORARY):  # nobody else writes here now
            path.unlink(missing_ok=True)

    def release(self) -> None:
        """Let the run go; what fails here must not take the place of the error that ends a run."""
        if self._lock.is_locked:
            self._unlink_lock()
            with contextlib.suppress(OSError):
                self._lock.release()

    def _unlink_lock(self) -> None:
        with contextlib.suppress(OSError):  # Windows removes it when it is let go
            (self.folder / ".lock").unlink()

    def shorten(self, rounds: int) -> None:
        """Become the record of the run that ends after so many rounds; nothing is left of the whole one's."""
        shorter = dataclasses.replace(self.config, stop_after=rounds)
        other = RunRecord(self.folder.parent, shorter, self._method)
        other.acquire()
        (other.folder / "done").unlink(missing_ok=True)
        about = read_json(self.folder / "config.json")
        write_json(other.folder / "config.json", {**about, "config": shorter.to_record()})
        old = self.folder
        self.release()
        self.config, self.folder, self._lock = other.config, other.folder, other._lock
        shutil.rmtree(old, ignore_errors=True)

    # -- while it runs --------------------------------------------------------------------------

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write config.json: what is about to be run, and more entries `about` the split.

        A checkpoint made with other data, or with what data nothing says, is a UserError.
        """
        if self.checkpoint.exists() and not self._same_data(about["split"]):
            raise UserError(
                f"the data have changed since the run {self.folder.name} was begun; bring the old data back, "
                "or remove that folder to begin again"
            )
        (self.folder / "failed.json").unlink(missing_ok=True)
        write_json(
            self.folder / "config.json", {"format": FORMAT, "config": self.config.to_record(), **about}
        )

    def _same_data(self, split: Mapping[str, Any]) -> bool:
        """Whether config.json tells of these data (old ones may leave them out); UserError: it is damaged."""
        try:
            begun = read_json(self.folder / "config.json")["split"]
            checksum, data_checksum = begun["checksum"], begun.get("data_checksum", "")
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UserError(
                f"the run {self.folder.name} has a checkpoint, but its config.json is missing or damaged; "
                "bring that file back, or remove that folder to begin again"
            ) from error
        return checksum == split["checksum"] and data_checksum in ("", split.get("data_checksum", ""))

    def write_rounds(self, lines: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
        write_text(self.folder / "rounds.jsonl", text)

    def save_checkpoint(self, state: Mapping[str, Any]) -> float:
        """Write a checkpoint and return the seconds it took."""
        started = time.perf_counter()
        save_tensors(self.checkpoint, {"identity": self.config.identity, **state}, durable=True)
        return time.perf_counter() - started

    def drop_rows(self, needed: Collection[str] = ()) -> None:
        """Remove files beside the checkpoint but those of these names."""
        for path in self.folder.glob(PATTERN):
            if path.name not in needed:
                with contextlib.suppress(OSError):  # Windows: it is open still; `open_store` removes it
                    path.unlink()

    def load_checkpoint(self, device: torch.device) -> dict[str, Any] | None:
        """The last checkpoint, or None; raises ValueError where it is damaged or of another run."""
        if not self.checkpoint.exists():
            return None
        state = load_tensors(self.checkpoint, device)
        if not isinstance(state, dict) or state.get("identity") != self.config.identity:
            raise ValueError("it is of another run")
        return state

    def fail(self, reason: str, environment: Mapping[str, Any]) -> None:
        """Write down why and where training diverged; a later attempt removes it."""
        write_json(self.folder / "failed.json", {"reason": reason, "environment": environment})

    # -- when it ends ---------------------------------------------------------------------------

    def finish(
        self, metrics: ClientMetrics, diagnostics: Mapping[str, Any], summary: Mapping[str, Any]
    ) -> None:
        """Write the results and the done marker, in this order, and drop the checkpoint."""
        write_text(self.folder / "clients.csv", _clients(metrics))
        (self.folder / DIAGNOSTICS).unlink(missing_ok=True)
        if diagnostics:
            write_json(self.folder / DIAGNOSTICS, diagnostics)
        write_json(self.folder / "summary.json", summary)
        seal(self.folder)
        self.checkpoint.unlink(missing_ok=True)
        self.drop_rows()


def _clients(metrics: ClientMetrics) -> str:
    """The content of clients.csv; AUC is empty where a client has none."""
    rows = ["client,test_samples,correct,accuracy,loss"]
    columns = (metrics.total, metrics.correct, metrics.accuracies, metrics.loss)
    for client, (total, correct, accuracy, loss) in enumerate(zip(*columns, strict=True)):
        rows.append(f"{client},{total},{correct},{accuracy:.6f},{loss:.6f}")
    if metrics.macro_f1 is not None and metrics.auc is not None:
        more = zip(metrics.macro_f1, metrics.auc, strict=True)
        added = ["macro_f1,auc", *(f"{f1:.6f},{'' if np.isnan(auc) else f'{auc:.6f}'}" for f1, auc in more)]
        rows = [f"{row},{end}" for row, end in zip(rows, added, strict=True)]
    return "\n".join(rows) + "\n"


def slug(config: RunConfig) -> str:
    """The setting and seed as a person would say them; the hash behind it makes the folder unique."""
    network = "" if config.own_network else "-" + re.sub(r"[^\w.+=,-]", "-", config.network)
    shifts = "".join("-" + re.sub(r"[^\w.]+", "-", shift.text) for shift in config.shifts)
    return f"{config.dataset}{network}-{config.partitioner.slug}{shifts}-seed{config.seed}"


def as_float(value: float | np.floating) -> float:
    """A rounded plain number for a JSON line."""
    return round(float(value), 6)
