"""What is not there, and what the rest was made with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmark.present.page.content import Content
from benchmark.present.page.mixtures import FIELDS, counts
from benchmark.records.same_data import copies
from benchmark.records.store import Record

__all__ = ["environment", "gaps"]

_ENVIRONMENT = {
    "version": "benchmark",
    "commit": "commit",
    "torch": "PyTorch",
    "python": "Python",
    "numpy": "NumPy",
    "device": "device",
    "executor": "executor",
    "processor": "processor",
    "cores": "cores",
    "system": "system",
}


def gaps(content: Content) -> dict[str, list[str]]:
    """The cells that have not been run, those that failed, and damaged records, under headings."""
    failed = content.store.failed
    waiting: dict[str, list[str]] = {}
    for cell in content.missing:
        if cell.config.hash not in failed:
            name, _, seed = cell.title.rpartition(", seed ")
            waiting.setdefault(name, []).append(seed)
    count = sum(map(len, waiting.values()))
    titles = {key: cell.title for key, cell in content.planned.items()}
    return {
        f"Not run yet: {count:,}": [
            f"{name}, seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}" for name, seeds in waiting.items()
        ],
        f"Stopped, since training diverged: {len(failed)}": [
            f"{titles.get(key, f'run {key}')}: {reason}" for key, reason in failed.items()
        ],
        f"Damaged records, not used: {len(content.store.damaged)}": [
            f"{found.folder.name}: {found.reason}" for found in content.store.damaged
        ],
    }


def environment(content: Content) -> list[tuple[str, str, bool]]:
    """Versions and hardware of all runs: title, values, and whether there are several that matter."""
    rows = []
    for field, title in _ENVIRONMENT.items():
        found = counts(content.records, field)
        several = len(found) > 1
        values = (f"{value} ({count})" if several else value for value, count in found.most_common())
        rows.append((title, ", ".join(values), several and field in FIELDS))
    return rows + _copies(content.records)


def _copies(records: Sequence[Record]) -> list[tuple[str, str, bool]]:
    """A row for every dataset that is there in several copies."""
    rows = []
    for kind, count in copies(record.data for record in records).items():
        if count > 1:
            found = Counter(str(record.data) for record in records if record.data.kind == kind)
            values = "; ".join(f"{value} ({number})" for value, number in found.most_common())
            rows.append((kind.dataset, values, True))
    return rows
