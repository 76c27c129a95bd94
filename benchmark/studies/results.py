"""The records of one study, by row and column."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.records.store import Record, Store
from pfl_benchmark.studies.grid import Grid, Profile, Study, Variant, configure
from pfl_benchmark.studies.statistics import Comparison, compare_with, mean_and_std

Place = tuple[str, str]  # titles of a row and a column


@dataclass(frozen=True)
class Results:
    """What is known of a study.

    Attributes:
        records: by place and seed; places without any are absent.
        configs: the run of each place (with some seed), as far as its method and setting are registered.
        failed: why training was stopped as diverged, by place and seed; such a run has no record.
        fedavg: FedAvg's records by column and seed, whether it is a row or not: what costs are held against.
        local: the same of Local Only.
    """

    study: Study
    profile: Profile
    records: Mapping[Place, Mapping[int, Record]]
    configs: Mapping[Place, RunConfig]
    failed: Mapping[Place, Mapping[int, str]]
    fedavg: Mapping[str, Mapping[int, Record]]
    local: Mapping[str, Mapping[int, Record]] = field(default_factory=dict)

    @property
    def grid(self) -> Grid:
        return self.study.grid(self.profile)

    @cached_property
    def rows(self) -> list[str]:
        titles = [variant.title for variant in self.grid.variants]
        if not self.study.ranked:
            return titles
        titles = [title for title in titles if title in self.tried] or titles
        first = self.columns[0]
        levels = {title: self.level(title, first, self.values(title, first)) or 0.0 for title in titles}
        return sorted(titles, key=levels.__getitem__, reverse=True)

    @cached_property
    def tried(self) -> set[str]:
        """The rows that have any record, or a run that was stopped."""
        return {row for row, _ in (*self.records, *self.failed)}

    @property
    def columns(self) -> list[str]:
        return [column.title for column in self.grid.columns]

    @property
    def begun(self) -> list[str]:
        """The columns that have any record."""
        return [column for column in self.columns if any(place[1] == column for place in self.records)]

    @property
    def seeds(self) -> list[int]:
        """All seeds that any record has."""
        return sorted({seed for found in self.records.values() for seed in found})

    def at(self, row: str, column: str) -> list[Record]:
        """The records of a place, by seed."""
        return list(self.records.get((row, column), {}).values())

    def all(self) -> list[Record]:
        """The records of all places."""
        return [record for found in self.records.values() for record in found.values()]

    def values(self, row: str, column: str, metric: str = "accuracy") -> list[float]:
        """A figure of the summaries of a place, one a seed."""
        return [float(record.summary[metric]) for record in self.at(row, column)]

    def diverged(self, row: str, column: str) -> bool:
        """Whether a run of a place ended far above the loss of guessing (`Record.diverged`)."""
        return any(record.diverged for record in self.at(row, column))

    def unsound(self, row: str, column: str) -> bool:
        """Whether a run of a place diverged, with some seed at least and whether it was stopped or not."""
        return (row, column) in self.failed or self.diverged(row, column)

    def lost(self, column: str) -> list[str]:
        """The rows of a column that have no record since training was stopped, or have one that diverged."""
        return [
            row
            for row in self.rows
            if self.diverged(row, column) or ((row, column) in self.failed and not self.at(row, column))
        ]

    def mean(self, row: str, column: str, metric: str = "accuracy") -> float | None:
        """Mean over seeds of a figure of a place; None where there is no record."""
        values = self.values(row, column, metric)
        return mean_and_std(values)[0] if values else None

    @cached_property
    def shared(self) -> Mapping[str, set[int]]:
        """By column the seeds that all of its rows with records have; rows that diverged do not count."""
        found: dict[str, list[set[int]]] = {column: [] for _, column in self.records}
        for place, records in self.records.items():
            found[place[1]] += [{*records}] * (place not in self.failed)
        return {column: set.intersection(*seeds) if seeds else set() for column, seeds in found.items()}

    def differs(self, column: str) -> bool:
        """Whether some rows of a column have other seeds than others."""
        others = [place for place in self.records if place[1] == column and place not in self.failed]
        return any({*self.records[place]} != self.shared[column] for place in others)

    def level(self, row: str, column: str, values: Sequence[float]) -> float | None:
        """Mean of a place's values, one a seed, over the seeds that all rows of the column have, if any.

        This is what rows are compared by; None where there are no values.
        """
        seeds = self.records.get((row, column), {})
        shared = [value for seed, value in zip(seeds, values, strict=False) if seed in self.shared[column]]
        return mean_and_std(shared or values)[0] if values else None

    def means(self, metric: str = "accuracy") -> pd.DataFrame:
        """The `level` of all places, rows × columns, NaN where there is no record."""
        levels = {
            column: [self.level(row, column, self.values(row, column, metric)) for row in self.rows]
            for column in self.columns
        }
        return pd.DataFrame(levels, index=self.rows, dtype=float)

    @cached_property
    def comparisons(self) -> dict[str, dict[str, Comparison]]:
        """For each column its best row against the others, by row; empty where nothing can be compared.

        A row that diverged with some seed is the best only if all did.
        """
        comparisons: dict[str, dict[str, Comparison]] = {}
        for column, means in self.means().items():
            known = means.dropna()
            samples = {str(row): self.samples(str(row), str(column)) for row in known.index}
            sound = known[[not self.unsound(str(row), str(column)) for row in known.index]]
            best = str((sound if len(sound) else known).idxmax()) if len(known) else ""
            comparisons[str(column)] = compare_with(samples, best) if len(known) > 1 else {}
        return comparisons

    def restricted(self, places: Sequence[Place]) -> Results:
        """Only the records of these places, over the seeds that all of them have."""
        found = {place: self.records[place] for place in places}
        common = set.intersection(*map(set, found.values())) if found else set()
        same = {place: {seed: of[seed] for seed in sorted(common)} for place, of in found.items()}
        return dataclasses.replace(self, records=same)

    def by_split(self, row: str, column: str) -> dict[tuple[int, str], Record]:
        """The records of a place by seed and split: runs on different splits are no pairs."""
        found = self.records.get((row, column), {})
        return {(seed, record.split): record for seed, record in found.items()}

    def samples(self, row: str, column: str) -> dict[tuple[int, str], np.ndarray]:
        """Accuracies of the clients, by seed and split."""
        return {key: record.accuracies for key, record in self.by_split(row, column).items()}

    def fingerprint(self) -> str:
        """Changes whenever something that tables and figures are made from changes."""
        printed = self.study.paper.digest() if self.study.paper else ""
        about = (self.study, self.profile, sorted(self.failed.items()), printed)
        digest = hashlib.sha256(repr(about).encode())
        others = (*sorted(self.fedavg.items()), *sorted(self.local.items()))
        for place, found in [*sorted(self.records.items()), *others]:
            for seed, record in found.items():
                digest.update(f"{place} {seed} {record.digest}".encode())
        return digest.hexdigest()


def collect(study: Study, profile: Profile, store: Store, seeds: Sequence[int] | None) -> Results:
    """Find the records of a study; `seeds` are the only ones to use, None stands for all that are there."""
    records, configs = {}, {}
    failed: dict[Place, dict[int, str]] = {}
    plain: dict[str, dict[str, dict[int, Record]]] = {"fedavg": {}, "local": {}}
    grid = study.grid(profile)

    def stored(config: RunConfig) -> dict[int, Record]:
        found = store.seeds(config)
        return {seed: record for seed, record in found.items() if seeds is None or seed in seeds}

    for column in grid.columns:
        for algo, found_of in plain.items():
            base = configure(Variant(algo, algo), column, profile)
            found_of[column.title] = stored(base) if base is not None else {}
        for variant in grid.variants:
            config = configure(variant, column, profile)
            if config is None:
                continue
            place = (variant.title, column.title)
            configs[place] = config
            if found := stored(config):
                records[place] = found
            for seed in profile.seeds if seeds is None else seeds:
                reason = store.failed.get(dataclasses.replace(config, seed=seed).hash)
                if reason and seed not in found:
                    failed.setdefault(place, {})[seed] = reason
    return Results(study, profile, records, configs, failed, plain["fedavg"], plain["local"])
