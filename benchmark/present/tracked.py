"""The tables of a results folder, and logging them wherever they are not logged yet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from pfl_benchmark.errors import UserError
from pfl_benchmark.present.render import RenderedFiles
from pfl_benchmark.records.files import read_json, write_json
from pfl_benchmark.render.formats.json_file import from_json
from pfl_benchmark.render.table import Table
from pfl_benchmark.studies.catalogue import STUDIES
from pfl_benchmark.track.base import Tracking, describe

_LOGGED = ".tracked.json"  # in the results folder: which tables are where, by what was rendered last


def tables_of(root: Path, studies: Iterable[str] = STUDIES) -> dict[str, list[Table]]:
    """All tables that some studies (default: the catalogue) have left in a results folder, by study.

    Raises:
        UserError: a file of them is damaged.
    """
    rendered, found = RenderedFiles(root), {}
    for study in studies:
        paths = [path for path in rendered.files(study) if path.match("tables/*.json") and path.exists()]
        if paths:
            found[study] = [_read(path) for path in paths]
    return found


def _read(path: Path) -> Table:
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}); make it again: python -m benchmark report --results-dir "
            f"{path.parent.parent}"
        ) from error


def log_tables(
    trackings: Sequence[Tracking], profile: str, root: Path, studies: Iterable[str] = STUDIES
) -> list[str]:
    """Log the tables of a results folder where these are not logged yet; returns a line for each failure."""
    warnings: list[str] = []
    found = tables_of(root, studies)
    tables = [table for own in found.values() for table in own]
    digest = hashlib.sha256(repr(tables).encode()).hexdigest()
    for tracking in trackings:
        try:
            logged = read_json(root / _LOGGED)
        except (OSError, ValueError):
            logged = {}
        if not tables or logged.get(tracking.place) == digest:
            continue
        try:
            tracking.log_tables(profile, root, tables, warnings.append)
            write_json(root / _LOGGED, logged | {tracking.place: digest})
        except Exception as error:
            warnings.append(f"{tracking.title} has not got the tables: {describe(error)}")
    return warnings
