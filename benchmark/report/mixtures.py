"""Whether runs that stand side by side were made by different versions or on different hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from benchmark.store import Record

__all__ = ["FIELDS", "UNKNOWN", "counts", "in_words", "mixed", "modified"]

# Entries of a record's environment, and what a warning calls several values of them.
FIELDS = {
    "version": "benchmark versions",
    "torch": "PyTorch versions",
    "commit": "commits",
    "device": "devices",
    "executor": "executors",
    "processor": "processors",
}
UNKNOWN = "not recorded"


def counts(records: Iterable[Record], field: str) -> Counter[str]:
    """How many records have each value of an entry of their environment.

    A record whose rounds were computed in several (`benchmark.engine.origins`) counts for each.
    """
    return Counter(value for record in records for value in _values(record, field))


def _values(record: Record, field: str) -> set[str]:
    summary = record.summary
    origins = [origin for origin in summary.get("origins", ()) if field in origin]
    return {str(made.get(field) or UNKNOWN) for made in (summary["environment"], *origins)}


def mixed(records: Sequence[Record]) -> dict[str, int]:
    """The `FIELDS` in which records differ, and how many different values there are."""
    found = {field: len(counts(records, field)) for field in FIELDS}
    return {field: count for field, count in found.items() if count > 1}


def in_words(found: dict[str, int]) -> str:
    """``3 commits and 2 devices``."""
    words = [f"{count} {FIELDS[field]}" for field, count in found.items()]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def modified(records: Iterable[Record]) -> int:
    """How many records were made with code that differs from their commit (which then ends in a plus)."""
    return sum(any(commit.endswith("+") for commit in _values(record, "commit")) for record in records)
