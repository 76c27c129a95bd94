"""What readers should know of runs that stand side by side: other code, versions, hardware or data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pfl_benchmark.records.same_data import copies
from pfl_benchmark.records.store import Record, Store
from pfl_benchmark.resolve.code import outdated
from pfl_benchmark.studies.grid import Profile, Study
from pfl_benchmark.studies.results import collect

# Entries of a record's environment: title, and what a warning calls several values, where these matter.
_ENTRIES = {
    "version": ("benchmark", "benchmark versions"),
    "commit": ("commit", "commits"),
    "torch": ("PyTorch", "PyTorch versions"),
    "python": ("Python", ""),
    "numpy": ("NumPy", ""),
    "device": ("device", "devices"),
    "executor": ("executor", "executors"),
    "processor": ("processor", "processors"),
    "cores": ("cores", ""),
    "system": ("system", ""),
}
UNKNOWN = "not recorded"


def counts(records: Iterable[Record], field: str) -> Counter[str]:
    """How many records have each value of an entry of their environment.

    A record whose rounds were computed in several (`records.environment`) counts for each.
    """
    return Counter(value for record in records for value in _values(record, field))


def _values(record: Record, field: str) -> set[str]:
    summary = record.summary
    origins = [origin for origin in summary.get("origins", ()) if field in origin]
    return {str(made.get(field) or UNKNOWN) for made in (summary["environment"], *origins)}


def environment(records: Sequence[Record]) -> list[tuple[str, str, bool]]:
    """Versions, hardware and copies of datasets: title, values, and whether there are several that matter."""
    rows = []
    for field, (title, matters) in _ENTRIES.items():
        known = counts(records, field)
        several = len(known) > 1
        values = (f"{value} ({count})" if several else value for value, count in known.most_common())
        rows.append((title, ", ".join(values), several and bool(matters)))
    for kind, number in copies(record.data for record in records).items():
        if number > 1:
            known = Counter(str(record.data) for record in records if record.data.kind == kind)
            values = (f"{value} ({count})" for value, count in known.most_common())
            rows.append((kind.dataset, "; ".join(values), True))
    return rows


def mixed(records: Sequence[Record]) -> dict[str, int]:
    """What records differ in, in words, and how many of it there are."""
    found = {words: len(counts(records, field)) for field, (_, words) in _ENTRIES.items() if words}
    found["copies of a dataset"] = max(copies(record.data for record in records).values(), default=0)
    return {what: count for what, count in found.items() if count > 1}


def in_words(found: dict[str, int]) -> str:
    """``3 commits and 2 devices``."""
    words = [f"{count} {what}" for what, count in found.items()]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def modified(records: Iterable[Record]) -> int:
    """How many records were made with code that differs from their commit (which then ends in a plus)."""
    return sum(any(commit.endswith("+") for commit in _values(record, "commit")) for record in records)


def cautions(
    studies: Sequence[Study], profile: Profile, store: Store, seeds: Sequence[int] | None = None
) -> list[str]:
    """Lines about mixtures in tables of some studies, and about records of other code."""
    with_runs = (study for study in studies if not study.computed)
    records = {study.name: collect(study, profile, store, seeds).all() for study in with_runs}
    names: dict[str, list[str]] = {}
    for study, found in records.items():
        for what in mixed(found):
            names.setdefault(what, []).append(study)
    lines = [f"records of several {what} share a table: {', '.join(where)}" for what, where in names.items()]
    used = {record.folder.name: record for found in records.values() for record in found}
    other = [record for record in used.values() if outdated(record.config, record.summary)]
    old = [record for record in other if outdated(record.config, record.summary, record.verified)]
    if old:
        lines += [
            f"{len(old)} of {len(used)} records were computed by other code (its method, the engine, …);",
            f"to make them again remove their folders, such as {old[0].folder.name}",
        ]
    if len(other) > len(old):
        rounds = min(record.verified["rounds"] for record in other if record not in old)
        lines.append(
            f"{len(other) - len(old)} of {len(used)} records were computed by other code; `verify` found "
            f"that this code gives the same (in the first {rounds} round{'s' * (rounds > 1)} at least)"
        )
    return lines
