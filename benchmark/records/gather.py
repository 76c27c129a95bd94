"""Finished runs from folders that somebody names: records, or results folders with records in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pfl_benchmark.errors import UserError, nearest
from pfl_benchmark.records.record import Record, read_reason, read_record
from pfl_benchmark.records.store import Store
from pfl_benchmark.records.writer import FOLDER


@dataclass
class Gathered:
    """What was found."""

    records: list[Record] = field(default_factory=list)  # every run once
    left_out: list[str] = field(default_factory=list)  # lines for what lies there and has no result


def gather(folders: Iterable[Path]) -> Gathered:
    """Read them.

    A folder with a config.json is a record and has to be usable; of any other all that is usable is taken.

    Raises:
        UserError: a folder is neither, a record that was named has no result or is damaged, or two records
            are of the same run and differ.
    """
    gathered, runs = Gathered(), dict[str, Record]()
    for folder in dict.fromkeys(folders):
        try:
            found = _in(folder)
        except OSError as error:
            raise UserError(
                f"cannot read {folder}: {error.strerror}; give folders of finished runs"
            ) from error
        gathered.left_out += found.left_out
        for record in found.records:
            known = runs.setdefault(record.config.hash, record)
            if known.digest != record.digest:
                raise UserError(
                    f"{known.folder} and {record.folder} are of the same run and differ; give one of them"
                )
    gathered.records = list(runs.values())
    return gathered


def require_folder(folder: Path) -> None:
    """Raise UserError for what is no folder; it suggests the nearest beside it."""
    if folder.is_dir():
        return
    if folder.exists():
        raise UserError(f"{folder} is no folder; give one of a run or of results")
    parent = folder.parent
    siblings = [other.name for other in parent.iterdir() if other.is_dir()] if parent.is_dir() else []
    raise UserError(
        f"there is no folder {folder}{nearest(folder.name, siblings)}; give one of a run or of results"
    )


def named_record(folder: Path) -> Record:
    """The record of a finished run in a folder that somebody names; UserError where there is none."""
    require_folder(folder)
    path = folder.resolve()
    if not (path / "config.json").exists():
        raise UserError(f"{folder} is no record of a run; give a folder that holds a config.json")
    if (path / "done").exists():
        return read_record(path)
    if reason := read_reason(path):
        raise UserError(f"{folder} has no result: {reason.split(';')[0]}; leave it out")
    raise UserError(f"the run in {folder} is not finished; leave it out, or continue it by its command")


def _in(folder: Path) -> Gathered:
    """The record in a folder, or all that is usable in a results folder."""
    require_folder(folder)
    path = folder.resolve()  # its name counts, which "." has not
    if (path / "config.json").exists():
        return Gathered([named_record(folder)])
    store = Store.scan(path)
    if not store.records():
        raise UserError(f"{folder} holds no finished run; give records, or a results folder that has some")
    finished = {record.folder for record in store.records()} | {found.folder for found in store.damaged}
    open_ = [p for p in path.iterdir() if FOLDER.fullmatch(p.name) and p not in finished]
    diverged = sorted(p.name for p in open_ if p.name[-10:] in store.failed)
    lines = store.remarks()
    if diverged:
        lines.append(f"{len(diverged)} in {folder} whose training diverged ({', '.join(diverged)})")
    if unfinished := len(open_) - len(diverged):
        lines.append(f"{unfinished} in {folder} not finished")
    return Gathered(store.records(), lines)
