"""Any finished runs against each other, client by client: the tests of the tables for a choice of records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pfl_benchmark.config.fields import changes, in_words, nearest_setting, setting_in_words
from pfl_benchmark.records.same_data import Kind
from pfl_benchmark.records.store import Record, family
from pfl_benchmark.studies.blocks import FIELDS, refuse_other_data
from pfl_benchmark.studies.statistics import Comparison, compare_with, mean_and_std, share_worse

_PLAIN = ("local", "fedavg")  # methods that every other one is held against
Split = tuple[Kind, int, str]  # of which data, seed and checksum: clients of equal splits are pairs


@dataclass(frozen=True)
class Candidate:
    """Runs that differ in their seed alone.

    Attributes:
        title: the method, and of the fields in which the candidates of a group differ those that are not as
            the group's setting has them.
        records: by seed.
    """

    title: str
    records: Mapping[int, Record]

    @property
    def accuracy(self) -> tuple[float, float | None]:
        """Mean and sample standard deviation over seeds; None for the latter of a single one."""
        return mean_and_std([record.summary["accuracy"] for record in self.records.values()])

    @property
    def diverged(self) -> bool:
        """Whether the training of a run ended far above the loss of guessing."""
        return any(record.diverged for record in self.records.values())

    @property
    def by_split(self) -> dict[Split, Record]:
        """The records by what they can be paired by."""
        return {_split(record): record for record in self.records.values()}


@dataclass(frozen=True)
class Row:
    """How a candidate fares against the reference, clients weighted by their test samples.

    Attributes:
        by_seed: its accuracy (0..1) minus the reference's, in the seeds and splits that both have.
        standard_error: of `difference`, clients and seeds taken as independent; NaN of a single pair.
        test: None of the reference itself, which is `Comparison.reference`, and where no split is in common.
    """

    candidate: Candidate
    by_seed: Mapping[int, float]
    standard_error: float
    test: Comparison | None

    @property
    def difference(self) -> float:
        """Mean over the seeds."""
        return float(np.mean(list(self.by_seed.values())))

    @property
    def verdict(self) -> str:
        """``better`` or ``worse`` than the reference by the test, ``undecided``, or empty without a test.

        With ``by ranks`` where the mean difference says otherwise: most clients gain a little, others lose
        much, or the reverse.
        """
        if self.test is None:
            return ""
        sign = self.test.direction
        if not self.test.significant or not sign:
            return "undecided"
        return ("better" if sign > 0 else "worse") + " by ranks" * (sign * self.difference <= 0)


@dataclass(frozen=True)
class Group:
    """Candidates on the same splits.

    Attributes:
        setting: in words, as far as all candidates have it in common.
        candidates: by accuracy, the best first.
    """

    setting: str
    candidates: tuple[Candidate, ...]

    @property
    def records(self) -> list[Record]:
        return [record for candidate in self.candidates for record in candidate.records.values()]

    @property
    def best(self) -> Candidate:
        """The best of those with the most seeds: means over different seeds cannot be ranked."""
        most = max(len(candidate.records) for candidate in self.candidates)
        return next(candidate for candidate in self.candidates if len(candidate.records) == most)

    def find(self, folder: Path) -> Candidate | None:
        """The candidate that has this record, or a copy of it."""
        identity = folder.resolve().name[-10:]
        found = (c for c in self.candidates if identity in (r.config.hash for r in c.records.values()))
        return next(found, None)

    def rows(self, reference: Candidate) -> list[Row]:
        """Everybody against `reference`, in the order of `candidates`."""
        samples = {
            candidate.title: {split: record.accuracies for split, record in candidate.by_split.items()}
            for candidate in self.candidates
        }
        tests = compare_with(samples, reference.title)
        return [_row(candidate, reference, tests.get(candidate.title)) for candidate in self.candidates]

    def _worse(self, candidate: Candidate) -> dict[str, float]:
        """The share of its clients that are worse off than under Local Only and FedAvg, if these are here."""
        found = {}
        own = {split: record.accuracies for split, record in candidate.by_split.items()}
        for name in _PLAIN:
            for other in (one for one in self.candidates if one.title == name and one is not candidate):
                theirs = {split: record.accuracies for split, record in other.by_split.items()}
                if (share := share_worse(own, theirs)) is not None:
                    found[f"worse_than_{name}"] = share
        return found

    def numbers(self, reference: Candidate, rows: Iterable[Row]) -> dict[str, Any]:
        """The rows against `reference` as JSON values; accuracies and differences in 0..1."""
        return {
            "setting": self.setting,
            "reference": reference.title,
            "runs": [{**row_in_numbers(row), **self._worse(row.candidate)} for row in rows],
        }


def _row(candidate: Candidate, reference: Candidate, test: Comparison | None) -> Row:
    ours, theirs = candidate.by_split, reference.by_split
    pairs = [(ours[split], theirs[split]) for split in ours if split in theirs]
    if test is None or not pairs:
        return Row(candidate, {}, math.nan, None)
    by_seed = {one.config.seed: one.summary["accuracy"] - other.summary["accuracy"] for one, other in pairs}
    gap = np.concatenate([one.accuracies - other.accuracies for one, other in pairs])
    weights = np.concatenate([one.test_samples / one.test_samples.sum() for one, _ in pairs]) / len(pairs)
    error = math.nan
    if len(gap) > 1:
        around = gap - np.mean(list(by_seed.values()))
        error = math.sqrt(np.sum((weights * around) ** 2) * len(gap) / (len(gap) - 1))
    return Row(candidate, by_seed, error, test)


def groups(records: Iterable[Record]) -> list[Group]:
    """Put together what can be compared: runs that are connected by common seeds and splits.

    Raises:
        UserError: records of equal splits were made on different copies of a dataset.
    """
    families: dict[str, dict[int, Record]] = {}
    for record in records:
        families.setdefault(family(record.config), {})[record.config.seed] = record
    connected: list[tuple[set[Split], list[dict[int, Record]]]] = []
    for found in families.values():
        splits, members = {_split(record) for record in found.values()}, [dict(sorted(found.items()))]
        for group in [group for group in connected if group[0] & splits]:
            connected.remove(group)
            splits, members = splits | group[0], [*group[1], *members]
        connected.append((splits, members))
    return [_group(members) for _, members in connected]


def _split(record: Record) -> Split:
    return record.data.kind, record.config.seed, record.split


def _group(members: Sequence[Mapping[int, Record]]) -> Group:
    refuse_other_data([record for found in members for record in found.values()])
    firsts = [next(iter(found.values())) for found in members]
    configs = [record.config for record in firsts]
    values = {name: {getattr(c, name) for c in configs if name not in c.idle} for name in FIELDS}
    common = [name for name, distinct in values.items() if len(distinct) < 2]
    differing = [name for name in FIELDS if name not in common]
    fullest = min(configs, key=lambda config: len(config.idle))
    setting = nearest_setting(fullest, common)
    changed = [changes(setting, config, differing).items() for config in configs]
    titles = [
        ", ".join([first.method, *(in_words(*item) for item in items)])
        for first, items in zip(firsts, changed, strict=True)
    ]
    candidates = [
        Candidate(title if titles.count(title) == 1 else f"{title} ({first.config.hash})", found)
        for title, first, found in zip(titles, firsts, members, strict=True)
    ]
    candidates.sort(key=lambda candidate: -candidate.accuracy[0])
    return Group(setting_in_words(fullest, common), tuple(candidates))


def row_in_numbers(row: Row) -> dict[str, Any]:
    """A row as JSON values: accuracies and differences in 0..1."""
    candidate, test = row.candidate, row.test
    mean, std = candidate.accuracy
    told = {
        "title": candidate.title,
        "records": [str(record.folder) for record in candidate.records.values()],
        "seeds": list(candidate.records),
        "accuracy": mean,
        "accuracy_std": std,
        **({"diverged": True} if candidate.diverged else {}),
    }
    if test is None:
        return told
    return told | {
        "difference": row.difference,
        "difference_by_seed": {str(seed): found for seed, found in row.by_seed.items()},
        "standard_error": None if math.isnan(row.standard_error) else row.standard_error,
        "pairs": test.pairs,
        "p": test.p,
        "p_holm": test.p_holm,
        "verdict": row.verdict,
    }
