"""Whether runs that stand side by side differ in what they should share: code, versions, hardware, data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from benchmark.records.same_data import copies
from benchmark.records.store import Record

__all__ = ["COPIES", "FIELDS", "UNKNOWN", "counts", "in_words", "mixed", "modified"]

# Entries of a record's environment, and what a warning calls several values of them.
FIELDS = {
    "version": "benchmark versions",
    "torch": "PyTorch versions",
    "commit": "commits",
    "device": "devices",
    "executor": "executors",
    "processor": "processors",
}
COPIES = "copies of a dataset"
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
    """What records differ in, in words (a value of `FIELDS`, or `COPIES`), and how many of it there are."""
    found = {what: len(counts(records, field)) for field, what in FIELDS.items()}
    found[COPIES] = max(copies(record.data for record in records).values(), default=0)
    return {what: count for what, count in found.items() if count > 1}


def in_words(found: dict[str, int]) -> str:
    """``3 commits and 2 devices``."""
    words = [f"{count} {what}" for what, count in found.items()]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def modified(records: Iterable[Record]) -> int:
    """How many records were made with code that differs from their commit (which then ends in a plus)."""
    return sum(any(commit.endswith("+") for commit in _values(record, "commit")) for record in records)
