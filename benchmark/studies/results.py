"""The records of one study, by row and column."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from benchmark.engine.config import RunConfig
from benchmark.statistics import Comparison, compare_with_best, mean_and_std
from benchmark.store import Record, Store
from benchmark.studies.grid import Grid, Profile, Study, configure

__all__ = ["Place", "Results", "collect"]

Place = tuple[str, str]  # titles of a row and a column


@dataclass(frozen=True)
class Results:
    """What is known of a study.

    Attributes:
        records: by place and seed; places without any are absent.
        configs: the run of each place (with some seed), as far as its method and setting are registered.
        failed: why training diverged, by place, where no record is.
    """

    study: Study
    profile: Profile
    records: Mapping[Place, Mapping[int, Record]]
    configs: Mapping[Place, RunConfig]
    failed: Mapping[Place, str]

    @property
    def grid(self) -> Grid:
        return self.study.grids[self.profile.name]

    @property
    def rows(self) -> list[str]:
        return [variant.title for variant in self.grid.variants]

    @property
    def columns(self) -> list[str]:
        return [column.title for column in self.grid.columns]

    @property
    def seeds(self) -> list[int]:
        """All seeds that any record has."""
        return sorted({seed for found in self.records.values() for seed in found})

    def at(self, row: str, column: str) -> list[Record]:
        """The records of a place, by seed."""
        return list(self.records.get((row, column), {}).values())

    def values(self, row: str, column: str, metric: str = "accuracy") -> list[float]:
        """A figure of the summaries of a place, one a seed."""
        return [float(record.summary[metric]) for record in self.at(row, column)]

    def means(self, metric: str = "accuracy") -> pd.DataFrame:
        """Means over seeds, rows × columns, NaN where there is no record."""
        frame = pd.DataFrame(index=self.rows, columns=self.columns, dtype=float)
        for row, column in self.records:
            frame.loc[row, column] = mean_and_std(self.values(row, column, metric))[0]
        return frame

    def compare(self, column: str) -> dict[str, Comparison]:
        """The best row of a column against the others, by row; empty where there is nothing to compare."""
        means = self.means()[column].dropna()
        if len(means) < 2:
            return {}
        samples = {row: self._client_accuracies(row, column) for row in means.index}
        return compare_with_best(samples, str(means.idxmax()))

    def _client_accuracies(self, row: str, column: str) -> pd.Series:
        # The split is part of the index: clients of different splits are no pairs.
        parts = {
            (seed, record.split): pd.Series(record.accuracies)
            for seed, record in self.records[row, column].items()
        }
        return pd.concat(parts)

    def fingerprint(self) -> str:
        """Changes whenever something that tables and figures are made from changes."""
        digest = hashlib.sha256(repr((self.study, self.profile, sorted(self.failed.items()))).encode())
        for place, found in sorted(self.records.items()):
            for seed, record in found.items():
                digest.update(f"{place} {seed} {record.digest}".encode())
        return digest.hexdigest()


def collect(study: Study, profile: Profile, store: Store, seeds: Sequence[int] | None) -> Results:
    """Find the records of a study.

    Args:
        seeds: the only ones to use; None stands for all that are there.
    """
    records, configs, failed = {}, {}, {}
    grid = study.grids.get(profile.name, Grid((), ()))
    for column in grid.columns:
        for variant in grid.variants:
            config = configure(variant, column, profile)
            if config is None:
                continue
            place = (variant.title, column.title)
            configs[place] = config
            found = {
                seed: record for seed, record in store.seeds(config).items() if seeds is None or seed in seeds
            }
            if found:
                records[place] = found
                continue
            for seed in profile.seeds if seeds is None else seeds:
                if reason := store.failed.get(dataclasses.replace(config, seed=seed).hash):
                    failed[place] = reason
    return Results(study, profile, records, configs, failed)
