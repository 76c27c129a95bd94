"""How well the reduced scale predicts the paper's: computed from the records of both."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pfl_benchmark.papers.ppfe.studies.shared import METHODS, columns
from pfl_benchmark.records.store import Store
from pfl_benchmark.studies.grid import Grid, Profile, Study

if TYPE_CHECKING:
    from pfl_benchmark.render.picture import Picture
    from pfl_benchmark.render.table import Table


@dataclass(frozen=True)
class _Beside:
    """A results folder and the one with the name `other` beside it, as `studies.grid.Computed`."""

    other: str

    def is_done(self, profile: Profile, root: Path, seeds: Sequence[int] | None) -> bool:
        """Always: there is nothing to keep."""
        return True

    def fill(self, profile: Profile, root: Path, seeds: Sequence[int] | None) -> None:
        """Nothing."""

    def digest(self, store: Store) -> str:
        """Changes with the records of both folders; empty if one of them has none."""
        both = (store, store.beside(self.other))
        digests = [[record.digest for record in found.records()] for found in both]
        return hashlib.sha256(repr(digests).encode()).hexdigest() if all(digests) else ""

    def make(self, profile: Profile, store: Store) -> tuple[list[Table], list[Picture]]:
        """Two tables; none if one of the folders has no records."""
        from pfl_benchmark.papers.ppfe.tables.prediction import claim_signs, rank_correlations

        here, there = store, store.beside(self.other)
        if not (here.records() and there.records()):
            return [], []
        return [rank_correlations(profile, here, there), claim_signs(profile, here, there)], []


PREDICTION = Study(
    "prediction",
    "How well this scale predicts the paper's",
    {"lite": Grid(METHODS, columns("lite_six", "lite_dirichlet"))},
    computed=_Beside("paper"),
    borrows=True,
    shows="Whether differences at this scale have the sign of those at the paper's.",
)
