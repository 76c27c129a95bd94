"""Any finished runs against each other, client by client: the tests of the tables for a choice of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmark.engine.records import FOLDER
from benchmark.errors import UserError, nearest
from benchmark.fields import (
    DATA_FIELDS,
    PROTOCOL_FIELDS,
    changes,
    in_words,
    nearest_setting,
    setting_in_words,
)
from benchmark.statistics import Comparison, compare_with_best, mean_and_std
from benchmark.store import Record, Store, family

__all__ = ["Contest", "Entrant", "Standing", "contests", "read_records"]

_FIELDS = tuple(name for name in (*DATA_FIELDS, *PROTOCOL_FIELDS) if name != "seed")


@dataclass(frozen=True)
class Entrant:
    """Runs that differ in their seed alone.

    Attributes:
        title: the method, and of the fields in which the entrants of a contest differ those that are not as
            the contest's setting has them.
        records: by seed.
    """

    title: str
    records: Mapping[int, Record]

    @property
    def accuracy(self) -> tuple[float, float | None]:
        """Mean and sample standard deviation over seeds; None for the latter of a single one."""
        return mean_and_std([record.summary["accuracy"] for record in self.records.values()])

    @property
    def by_split(self) -> dict[tuple[int, str], Record]:
        """The records by seed and split: others can be paired with those of the same."""
        return {(seed, record.split): record for seed, record in self.records.items()}


@dataclass(frozen=True)
class Standing:
    """How an entrant fares against the reference.

    Attributes:
        by_seed: accuracy minus that of the reference, clients weighted by their test samples, in the seeds
            that both have.
        test: the reference against it (`Comparison.best` is the reference); None of the reference itself, and
            where the two have no seed and split in common.
    """

    entrant: Entrant
    by_seed: Mapping[int, float]
    test: Comparison | None

    @property
    def difference(self) -> float | None:
        """Mean over the seeds that both have; None where there is none."""
        return fmean(self.by_seed.values()) if self.test is not None else None

    @property
    def verdict(self) -> str:
        """``better`` or ``worse`` than the reference by the test, ``undecided``, or empty without a test."""
        if self.test is None:
            return ""
        if not self.test.significant:
            return "undecided"
        return {1: "worse", -1: "better"}.get(self.test.direction, "undecided")


@dataclass(frozen=True)
class Contest:
    """Entrants on the same splits.

    Attributes:
        setting: in words, as far as all entrants have it in common.
        entrants: by accuracy, the best first.
    """

    setting: str
    entrants: tuple[Entrant, ...]

    @property
    def records(self) -> list[Record]:
        return [record for entrant in self.entrants for record in entrant.records.values()]

    def find(self, folder: Path) -> Entrant | None:
        """The entrant that has the record in this folder."""
        for entrant in self.entrants:
            if folder.resolve() in (record.folder.resolve() for record in entrant.records.values()):
                return entrant
        return None

    def standings(self, reference: Entrant) -> list[Standing]:
        """Everybody against `reference`, in the order of `entrants`."""
        keys = {str(place): entrant for place, entrant in enumerate(self.entrants)}  # titles may be alike
        samples = {
            key: {split: record.accuracies for split, record in entrant.by_split.items()}
            for key, entrant in keys.items()
        }
        (own,) = (key for key, entrant in keys.items() if entrant is reference)
        tests = compare_with_best(samples, own)
        theirs = reference.by_split
        return [
            Standing(
                entrant,
                {
                    split[0]: record.summary["accuracy"] - theirs[split].summary["accuracy"]
                    for split, record in entrant.by_split.items()
                    if key in tests and split in theirs
                },
                tests.get(key),
            )
            for key, entrant in keys.items()
        ]


def read_records(folders: Iterable[Path]) -> list[Record]:
    """The finished runs in `folders`, each of which is a record or a results folder with records in it.

    Raises:
        UserError: one is neither, is not finished, is damaged, or two are of the same run and differ.
    """
    found: dict[str, Record] = {}
    for folder in folders:
        for record in _records_in(folder):
            known = found.setdefault(record.config.hash, record)
            if known.digest != record.digest:
                raise UserError(
                    f"{known.folder} and {record.folder} are of the same run and differ; give one of them"
                )
    return list(found.values())


def _records_in(folder: Path) -> list[Record]:
    if not folder.is_dir():
        siblings = [other.name for other in folder.parent.iterdir()] if folder.parent.is_dir() else []
        raise UserError(
            f"there is no folder {folder}{nearest(folder.name, siblings)}; give folders of finished runs"
        )
    path = folder.resolve()  # its name counts, which "." has not
    if not FOLDER.fullmatch(path.name):
        store = Store.scan(path)
    else:
        store = Store(path.parent)
        store.add(path)
    if store.damaged:
        damaged = store.damaged[0]
        raise UserError(
            f"the record {damaged.folder.name} is damaged: {damaged.reason}; remove it and run it again, or "
            "leave it out"
        )
    records = store.records()
    if records:
        return records
    if store.failed and path.name[-10:] in store.failed:
        raise UserError(f"{folder} has no result: {store.failed[path.name[-10:]]}; leave it out")
    if (path / "config.json").exists():
        raise UserError(f"the run in {folder} is not finished; give its command again, which continues it")
    raise UserError(f"{folder} holds no finished run; give records, or a results folder that has some")


def contests(records: Iterable[Record]) -> list[Contest]:
    """Put together what can be compared: runs that are connected by common seeds and splits.

    Raises:
        UserError: records of equal splits were made on different copies of a dataset.
    """
    families: dict[str, dict[int, Record]] = {}
    for record in records:
        families.setdefault(family(record.config), {})[record.config.seed] = record
    groups: list[tuple[set[tuple[int, str]], list[dict[int, Record]]]] = []
    for found in families.values():
        splits, members = {(seed, record.split) for seed, record in found.items()}, [found]
        for group in [group for group in groups if group[0] & splits]:
            groups.remove(group)
            splits, members = splits | group[0], [*group[1], *members]
        groups.append((splits, members))
    return [_contest(members) for _, members in groups]


def _contest(members: Sequence[Mapping[int, Record]]) -> Contest:
    everything = [record for found in members for record in found.values()]
    for record in everything[1:]:
        if record.data.differs(everything[0].data):
            raise UserError(
                f"{everything[0].folder.name} and {record.folder.name} were made on different copies of "
                f"'{record.config.dataset}' ({everything[0].data}; {record.data}), which cannot be compared; "
                "leave out one of them"
            )
    configs = [next(iter(found.values())).config for found in members]
    values = {name: {getattr(c, name) for c in configs if name not in c.idle} for name in _FIELDS}
    common = [name for name, found in values.items() if len(found) < 2]
    differing = [name for name in _FIELDS if name not in common]
    setting = nearest_setting(configs[0], common)
    entrants = [
        Entrant(_title(next(iter(found.values())), setting, differing), dict(sorted(found.items())))
        for found in members
    ]
    entrants.sort(key=lambda entrant: -entrant.accuracy[0])
    return Contest(setting_in_words(configs[0], common), tuple(entrants))


def _title(record: Record, setting: str, fields: Iterable[str]) -> str:
    changed = changes(setting, record.config, fields)
    return ", ".join([record.method, *(in_words(*item) for item in changed.items())])
