"""The records of a results folder: read once, checked, found by configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.errors import UserError, nearest
from pfl_benchmark.records.forked import forked
from pfl_benchmark.records.record import BadRecord, Record, data_in, read_reason, read_record
from pfl_benchmark.records.same_data import Data
from pfl_benchmark.records.writer import FOLDER, refuse_record

_MANY = 1000  # folders from which on they are read side by side
_SHOWN = 3  # reasons in an error


@dataclass(frozen=True)
class _Found:
    """What a folder holds: a record, why it cannot be used, why training diverged, or none of these."""

    record: Record | None = None
    damage: str = ""
    diverged: str = ""


def _look(folder: Path) -> _Found:
    try:
        if not (folder / "done").exists():
            return _Found(diverged=read_reason(folder))
        return _Found(read_record(folder))
    except BadRecord as error:
        return _Found(damage=error.reason)
    except OSError as error:
        return _Found(damage=error.strerror or "it cannot be read")


@dataclass
class Store:
    """What lies in a results folder."""

    root: Path
    damaged: list[BadRecord] = field(default_factory=list)  # cannot be used, and count as missing
    failed: dict[str, str] = field(default_factory=dict)  # why training diverged, by configuration's hash
    _records: dict[str, dict[int, Record]] = field(default_factory=dict)
    _beside: dict[str, Store] = field(default_factory=dict)

    @classmethod
    def scan(cls, root: Path) -> Store:
        """Read all finished records below `root`, which need not exist; UserError for two of the same run."""
        refuse_record(root)
        store = cls(root)
        try:
            folders = sorted(path for path in root.iterdir() if FOLDER.fullmatch(path.name) and path.is_dir())
        except FileNotFoundError:
            return store
        except OSError as error:
            raise UserError(
                f"cannot read the results folder {root}: {error.strerror}; choose another --results-dir"
            ) from error
        for folder, found in zip(
            folders, forked(_look, folders, len(folders) >= _MANY, chunk=32), strict=True
        ):
            store._take(folder, found)
        return store

    def add(self, folder: Path) -> None:
        """Take note of one record folder, whatever its state; UserError for a second one of the same run."""
        self._take(folder, _look(folder))

    def _take(self, folder: Path, found: _Found) -> None:
        self.failed.pop(folder.name[-10:], None)
        if found.damage:
            self.damaged.append(BadRecord(folder, found.damage))
        if found.diverged:
            self.failed[folder.name[-10:]] = found.diverged
        if (record := found.record) is None:
            return
        known = self._records.setdefault(family(record.config), {}).setdefault(record.config.seed, record)
        if known.folder != folder:
            raise UserError(
                f"{known.folder} and {folder.name} are records of the same run; remove one of them"
            )

    def beside(self, name: str) -> Store:
        """The records of another folder beside this one, read once."""
        if name not in self._beside:
            self._beside[name] = Store.scan(self.root.parent / name)
        return self._beside[name]

    def find(self, config: RunConfig) -> Record | None:
        """The record of exactly this run."""
        return self.seeds(config).get(config.seed)

    def seeds(self, config: RunConfig) -> dict[int, Record]:
        """The records of this run with whatever seed, by seed in increasing order."""
        return dict(sorted(self._records.get(family(config), {}).items()))

    def records(self) -> list[Record]:
        """All of them."""
        return [record for family in self._records.values() for record in family.values()]

    def remarks(self) -> list[str]:
        """A line for every damaged record, and one for those that are not sealed."""
        lines = [f"damaged record, not used: {found.folder.name}: {found.reason}" for found in self.damaged]
        unsealed = [record.folder.name for record in self.records() if not record.sealed]
        if unsealed:
            lines.append(f"records of an older version, not sealed: {len(unsealed)}, such as {unsealed[0]}")
        return lines

    def set_aside(self) -> list[str]:
        """Rename damaged records to ``<folder>.damaged``, so that their runs can be made again.

        Returns one line for each that says what was done; raises UserError where renaming is forbidden.
        """
        lines = []
        for bad in self.damaged:
            aside = bad.folder.with_name(f"{bad.folder.name}.damaged")
            count = 1
            while aside.exists():
                count += 1
                aside = bad.folder.with_name(f"{bad.folder.name}.damaged-{count}")
            try:
                bad.folder.rename(aside)
            except FileNotFoundError:
                continue  # another process was faster
            except OSError as error:
                raise UserError(
                    f"the record {bad.folder} is damaged ({bad.reason}) and cannot be renamed: "
                    f"{error.strerror}; mend the permissions there or choose another --results-dir"
                ) from error
            lines.append(f"damaged record set aside as {aside.name}: {bad.reason}")
        self.damaged.clear()
        return lines


def family(config: RunConfig) -> str:
    """The identity of a run without its seed."""
    return dataclasses.replace(config, seed=0).hash


def finished_data(root: Path, dataset: str) -> dict[str, Data]:
    """The data of a folder's finished records of a dataset, by folder's name, as far as they can be read."""
    folders = [marker.parent for marker in sorted(root.glob(f"*-{dataset}-*/done"))]
    found = {folder.name: data_in(folder) for folder in folders if FOLDER.fullmatch(folder.name)}
    return {name: data for name, data in found.items() if data is not None}


@dataclass
class Gathered:
    """What was found."""

    records: list[Record] = field(default_factory=list)  # every run once
    left_out: list[str] = field(default_factory=list)  # lines for what lies there and has no result


def gather(folders: Iterable[Path]) -> Gathered:
    """Read them; UserError for records of the same run that differ.

    A folder with a config.json is a record and has to be usable; of any other all that is usable is taken.
    """
    runs, left_out = dict[str, Record](), list[str]()
    for folder in dict.fromkeys(folders):
        try:
            inside = _in(folder)
        except OSError as error:
            raise UserError(
                f"cannot read {folder}: {error.strerror}; give folders of finished runs"
            ) from error
        left_out += inside.left_out
        for record in inside.records:
            known = runs.setdefault(record.config.hash, record)
            if known.digest != record.digest:
                raise UserError(
                    f"{known.folder} and {record.folder} are of the same run and differ; give one of them"
                )
    return Gathered([*runs.values()], left_out)


def reasons(lines: Sequence[str]) -> str:
    """Why no record can be used, as it follows "no finished run"; empty without lines."""
    return f" that can be used ({'; '.join(lines[:_SHOWN])}{'; …' * (len(lines) > _SHOWN)})" if lines else ""


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
    if (path / "done").exists():
        raise BadRecord(folder, "config.json is missing, which its seal names")
    store = Store.scan(path)
    finished = {record.folder for record in store.records()} | {found.folder for found in store.damaged}
    open_ = [p for p in path.iterdir() if FOLDER.fullmatch(p.name) and p not in finished]
    diverged = sorted(p.name for p in open_ if p.name[-10:] in store.failed)
    lines = store.remarks()
    if diverged:
        lines.append(f"{len(diverged)} in {folder} whose training diverged ({', '.join(diverged)})")
    if unfinished := len(open_) - len(diverged):
        lines.append(f"{unfinished} in {folder} not finished")
    if not store.records():
        raise UserError(
            f"{folder} holds no finished run{reasons(lines)}; give records, or a results folder that has some"
        )
    return Gathered(store.records(), lines)
