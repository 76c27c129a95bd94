"""The rendered tables of a results folder, and logging them wherever they are not logged yet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.engine.files import write_json
from benchmark.present.files import Ledger
from benchmark.studies.catalogue import STUDIES
from benchmark.track.base import Tracking, describe

__all__ = ["Rendered", "log_tables", "rendered_tables"]

_LOGGED = ".tracked.json"  # in the results folder: which tables are where


@dataclass(frozen=True)
class Rendered:
    """A table as it was printed.

    Attributes:
        study: to which it belongs.
        markdown: heading, table, caption and notes.
        numbers: the same as CSV, plain numbers.
    """

    study: str
    name: str
    markdown: str
    numbers: str

    @property
    def cells(self) -> list[list[str]]:
        """The column names and the rows, without marks of emphasis."""
        lines = [line for line in self.markdown.splitlines() if line.startswith("|")]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        return [[cell.replace("**", "") for cell in row] for row in (*rows[:1], *rows[2:])]


def rendered_tables(root: Path) -> list[Rendered]:
    """All tables that were rendered in a results folder, in the catalogue's order."""
    ledger = Ledger(root)
    found = []
    for study in STUDIES:
        for path in ledger.files(study):
            numbers = path.with_suffix(".csv")
            if path.suffix == ".md" and path.exists() and numbers.exists():
                texts = (file.read_text(encoding="utf-8") for file in (path, numbers))
                found.append(Rendered(study, path.stem, *texts))
    return found


def log_tables(trackings: Sequence[Tracking], profile: str, root: Path) -> list[str]:
    """Log the tables of a results folder wherever these very tables are not logged yet.

    Returns:
        What has gone wrong, a line each; it costs nothing but this.
    """
    warnings: list[str] = []
    tables = rendered_tables(root)
    digest = hashlib.sha256(repr(tables).encode()).hexdigest()
    for tracking in trackings:
        logged = _logged(root)
        if not tables or logged.get(tracking.place) == digest:
            continue
        try:
            tracking.log_tables(profile, root, tables, warnings.append)
            write_json(root / _LOGGED, logged | {tracking.place: digest})
        except Exception as error:
            warnings.append(f"{tracking.title} has not got the tables: {describe(error)}")
    return warnings


def _logged(root: Path) -> dict[str, Any]:
    try:
        found = json.loads((root / _LOGGED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
