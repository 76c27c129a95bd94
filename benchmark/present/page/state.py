"""What is not there, and what the rest was made with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from benchmark.present.page.content import Content
from benchmark.present.page.mixtures import FIELDS, counts
from benchmark.records.same_data import copies
from benchmark.records.store import Record

__all__ = ["cells", "environment"]

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
_FEW = 12  # lines that are shown without being asked for


def cells(content: Content) -> str:
    """The cells that have not been run, those that failed, and damaged records."""
    failed = content.store.failed
    waiting: dict[str, list[str]] = {}
    for cell in content.missing:
        if cell.config.hash not in failed:
            name, _, seed = cell.title.rpartition(", seed ")
            waiting.setdefault(name, []).append(seed)
    count = sum(map(len, waiting.values()))
    titles = {key: cell.title for key, cell in content.planned.items()}
    lists = {
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
    parts = [_list(title, lines) for title, lines in lists.items() if lines]
    all_done = "every cell of these studies has a record" if titles else "these studies ask for no runs"
    return "\n".join(parts) or f"<p>None: {all_done}.</p>"


def _list(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    opened = " open" if len(lines) <= _FEW else ""
    return f'<details class="cells"{opened}><summary>{escape(title)}</summary><ul>{items}</ul></details>'


def environment(content: Content) -> str:
    """Versions and hardware of all runs; marks where there are several that matter."""
    rows = []
    for field, title in _ENVIRONMENT.items():
        found = counts(content.records, field)
        several = len(found) > 1
        values = ", ".join(
            escape(value) + (f" ({count})" if several else "") for value, count in found.most_common()
        )
        badge = ' <span class="badge">mixed</span>' if several and field in FIELDS else ""
        rows.append(f'<tr><th scope="row">{title}{badge}</th><td>{values or "–"}</td></tr>')
    rows += _copies(content.records)
    return (
        "<p>Accuracies of different versions, devices and executors differ by float rounding at least; "
        "seconds on different hardware cannot be compared. In brackets: how many runs.</p>\n"
        '<figure class="table"><div class="scroll" role="region" tabindex="0" aria-labelledby="made-with">\n'
        '<table class="wrap"><caption class="unseen" id="made-with">What the runs were made with</caption>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div></figure>"
    )


def _copies(records: Sequence[Record]) -> list[str]:
    """A row for every dataset that is there in several copies."""
    rows = []
    for kind, count in copies(record.data for record in records).items():
        if count > 1:
            found = Counter(str(record.data) for record in records if record.data.kind == kind)
            values = "; ".join(f"{escape(value)} ({number})" for value, number in found.most_common())
            name = f'{escape(kind.dataset)} <span class="badge">mixed</span>'
            rows.append(f'<tr><th scope="row">{name}</th><td>{values}</td></tr>')
    return rows
