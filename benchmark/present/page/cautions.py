"""What the command line says of the records behind tables: mixtures, and records of other code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmark.present.page.mixtures import mixed
from benchmark.records.freshness import outdated
from benchmark.records.store import Record, Store
from benchmark.studies.grid import Profile, Study
from benchmark.studies.results import collect

__all__ = ["cautions"]


def cautions(
    studies: Sequence[Study], profile: Profile, store: Store, seeds: Sequence[int] | None = None
) -> list[str]:
    """Lines about the records of some studies; none where there is nothing to say."""
    computed = (study for study in studies if not study.computed)
    records = {study.name: collect(study, profile, store, seeds).all() for study in computed}
    return [*_mixtures(records), *_outdated(records)]


def _mixtures(records: Mapping[str, Sequence[Record]]) -> list[str]:
    """A line for every kind of mixture, with the studies whose tables have it."""
    names: dict[str, list[str]] = {}
    for study, found in records.items():
        for what in mixed(found):
            names.setdefault(what, []).append(study)
    return [f"tables mix {what}: {', '.join(where)}" for what, where in names.items()]


def _outdated(records: Mapping[str, Sequence[Record]]) -> list[str]:
    used = {record.folder.name: record for found in records.values() for record in found}
    other = {name: record for name, record in used.items() if outdated(record.config, record.summary)}
    old = [name for name, found in other.items() if outdated(found.config, found.summary, found.verified)]
    lines = []
    if old:
        lines += [
            f"{len(old)} of {len(used)} records were computed by other code (its method, the engine, …);",
            f"to make them again remove their folders, such as {old[0]}",
        ]
    if len(other) > len(old):
        rounds = min(found.verified["rounds"] for name, found in other.items() if name not in old)
        lines.append(
            f"{len(other) - len(old)} of {len(used)} records were computed by other code; `verify` found "
            f"that this code gives the same (in the first {rounds} round{'s' * (rounds > 1)} at least)"
        )
    return lines
