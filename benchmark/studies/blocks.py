"""Blocks of a comparison over settings: a setting and a seed, with a record of every method.

Settings are told apart by all fields of the configuration but method, hyper-parameters, the trials that
chose them, and seed.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pfl_benchmark.algorithms import called
from pfl_benchmark.config.fields import DATA_FIELDS, PROTOCOL_FIELDS, setting_in_words
from pfl_benchmark.datasets.shifts import NO_SHIFT
from pfl_benchmark.errors import UserError, unknown
from pfl_benchmark.records.store import Record

FIELDS = tuple(name for name in (*DATA_FIELDS, *PROTOCOL_FIELDS, "stop_after") if name != "seed")
_OF_SETTINGS = tuple(name for name in FIELDS if name != "tuning_trials")


@dataclass(frozen=True)
class Block:
    """A setting and a seed.

    Attributes:
        setting: in words.
        records: by method; of one split.
    """

    setting: str
    seed: int
    records: Mapping[str, Record]

    @property
    def name(self) -> str:
        return f"{self.setting}, seed {self.seed}"

    @property
    def split(self) -> tuple[str, str]:
        """Of which dataset and with which checksum; of what a shift draws the checksum says nothing."""
        record = next(iter(self.records.values()))
        drawn = f" {record.config.shift}, seed {self.seed}" * (record.config.shift != NO_SHIFT)
        return record.config.dataset, record.split + drawn


@dataclass(frozen=True)
class Blocks:
    """Blocks of the same methods, those of a setting one after the other.

    Attributes:
        methods: as their folders are called, in alphabetical order.
        left_out: a line for each block that cannot be used.
        counts: of how many blocks, whether usable or not, each method has a record.
    """

    methods: tuple[str, ...]
    blocks: tuple[Block, ...]
    left_out: tuple[str, ...]
    counts: Mapping[str, int]

    @property
    def records(self) -> list[Record]:
        return [record for block in self.blocks for record in block.records.values()]

    @property
    def settings(self) -> tuple[str, ...]:
        """Of each block [B]."""
        return tuple(block.setting for block in self.blocks)

    @property
    def splits(self) -> int:
        """How many different ones there are; blocks that share one are the least independent."""
        return len({block.split for block in self.blocks})

    def accuracies(self) -> np.ndarray:
        """Accuracies (0..1), weighted by test samples [B, methods]."""
        rows = [[block.records[name].summary["accuracy"] for name in self.methods] for block in self.blocks]
        return np.array(rows, dtype=float).reshape(len(self.blocks), len(self.methods))

    def variants(self) -> list[str]:
        """Methods that have other hyper-parameters in some settings, such as defaults that were fitted."""
        found: dict[str, set[str]] = {}
        for block in self.blocks:
            for name, record in block.records.items():
                found.setdefault(name, set()).add(repr(sorted(record.config.hyper.items())))
        return [name for name, hyper in found.items() if len(hyper) > 1]


def blocks_of(records: Iterable[Record], methods: Sequence[str] = ()) -> Blocks:
    """Put records together.

    Runs that were evaluated on held-out training samples are left out where others were on test samples:
    such runs choose hyper-parameters.

    Args:
        methods: those that are compared; none: all that there are.

    Raises:
        UserError: a method that no record is of, or twice the same; two records of a method in one block;
            records of a setting were made on different copies of a dataset.
    """
    records = list(records)
    known = sorted({record.method for record in records})
    methods = [name if name in known else called(name) for name in methods]
    for name in methods:
        if name not in known:
            raise unknown("method", name, known)
    if len(set(methods)) < len(methods):
        raise UserError("--methods names a method twice; give each once")
    wanted = tuple(sorted(methods or known))
    tested = any(not record.config.validation for record in records if record.method in wanted)
    found: list[Block] = []
    left_out: list[str] = []
    counts: Counter[str] = Counter()
    for setting, runs in _by_setting(record for record in records if record.method in wanted):
        refuse_other_data(runs)
        for seed in sorted({record.config.seed for record in runs}):
            block = Block(setting, seed, _by_method([r for r in runs if r.config.seed == seed]))
            counts.update([*block.records])
            if reason := _unfit(block, wanted, tested):
                left_out.append(f"{block.name}: {reason}")
            else:
                found.append(block)
    return Blocks(wanted, tuple(found), tuple(left_out), counts)


def _by_setting(records: Iterable[Record]) -> list[tuple[str, list[Record]]]:
    """Settings in words, in alphabetical order, and their records."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        settled = record.config.settled()
        groups.setdefault(tuple(getattr(settled, name) for name in _OF_SETTINGS), []).append(record)
    words = ((setting_in_words(runs[0].config.settled(), _OF_SETTINGS), runs) for runs in groups.values())
    return sorted(words, key=lambda item: item[0])


def _by_method(runs: Sequence[Record]) -> dict[str, Record]:
    """Of one setting and seed."""
    found: dict[str, Record] = {}
    for record in runs:
        known = found.setdefault(record.method, record)
        as_known = dataclasses.replace(record.config, tuning_trials=known.config.tuning_trials)
        if as_known != known.config:  # else the same run, found by a search
            raise UserError(
                f"{known.folder.name} and {record.folder.name} are of one method, setting and seed, and "
                "differ in hyper-parameters that their names do not tell; give one of them"
            )
    return found


def _unfit(block: Block, wanted: Sequence[str], tested: bool) -> str:
    """Why a block cannot be used; empty if it can."""
    records = block.records.values()
    if tested and any(record.config.validation for record in records):
        return "evaluated on held-out training samples, others on test samples"
    if missing := [name for name in wanted if name not in block.records]:
        return f"no record of {listed(missing)}"
    if len({record.split for record in records}) > 1:
        return "its records have different splits"
    return ""


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many more: ``a, b and 3 more``."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def refuse_other_data(records: Sequence[Record]) -> None:
    """Refuse records that cannot be compared because their data are not the same.

    Raises:
        UserError: two of them were made on different copies of a dataset.
    """
    for one, other in itertools.combinations(records, 2):
        if one.data.differs(other.data):
            raise UserError(
                f"{one.folder.name} and {other.folder.name} were made on different copies of "
                f"'{one.config.dataset}' ({one.data}; {other.data}), which cannot be compared; leave out one "
                "of them"
            )
