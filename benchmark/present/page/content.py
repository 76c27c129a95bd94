"""What the page is about: the studies' runs, the runs they should have, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pfl_benchmark import __version__
from pfl_benchmark.records.store import Record, Store
from pfl_benchmark.studies.grid import PlannedRun, Profile, Study, plan


@dataclass
class Content:
    """What a page shows.

    Attributes:
        seeds: the only ones to show; None stands for all that have records.
    """

    studies: Sequence[Study]
    profile: Profile
    store: Store
    seeds: Sequence[int] | None

    @cached_property
    def records(self) -> list[Record]:
        """All runs of the folder, also those that no study uses."""
        found = [r for r in self.store.records() if self.seeds is None or r.config.seed in self.seeds]
        return sorted(found, key=lambda record: record.folder.name)

    @cached_property
    def planned(self) -> dict[str, PlannedRun]:
        """The runs of the studies, for all seeds that are wanted or have records, by hash."""
        seeds = dict.fromkeys([*self._wanted, *(record.config.seed for record in self.records)])
        return {run.config.hash: run for run in plan(self.studies, self.profile, [*seeds])}

    @cached_property
    def runs(self) -> list[PlannedRun]:
        """Those that should have a record."""
        return [run for run in self.planned.values() if run.config.seed in self._wanted]

    @cached_property
    def missing(self) -> list[PlannedRun]:
        """Those that have none."""
        return [run for run in self.runs if self.store.find(run.config) is None]

    def of(self, study: Study) -> tuple[int, int]:
        """How many runs of a study are done, and how many there are."""
        total = sum(study.name in run.studies for run in self.runs)
        return total - sum(study.name in run.studies for run in self.missing), total

    @property
    def gaps(self) -> dict[str, list[str]]:
        """The runs that have not been run, those that failed, and damaged records, under headings."""
        failed, damaged = self.store.failed, self.store.damaged
        waiting: dict[str, list[str]] = {}
        for run in self.missing:
            if run.config.hash not in failed:
                name, _, seed = run.title.rpartition(", seed ")
                waiting.setdefault(name, []).append(seed)
        titles = {key: run.title for key, run in self.planned.items()}
        return {
            f"Not run yet: {sum(map(len, waiting.values())):,}": [
                f"{name}, seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}" for name, seeds in waiting.items()
            ],
            f"Stopped, since training diverged: {len(failed)}": [
                f"{titles.get(key, f'run {key}')}: {reason}" for key, reason in failed.items()
            ],
            f"Damaged records, not used: {len(damaged)}": [
                f"{found.folder.name}: {found.reason}" for found in damaged
            ],
        }

    @property
    def source(self) -> tuple[object, ...]:
        """All that the page is made from besides the studies' parts and the program."""
        damaged = [(found.folder.name, found.reason) for found in self.store.damaged]
        digests = [(record.folder.name, record.digest) for record in self.records]
        failed = sorted(self.store.failed.items())
        return (__version__, self.profile, self.seeds, self.studies, damaged, failed, digests)

    @property
    def _wanted(self) -> Sequence[int]:
        return self.profile.seeds if self.seeds is None else self.seeds
