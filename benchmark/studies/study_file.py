"""A study from a file: of the entries of a grid (docs/grid.md), with a section for each profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pfl_benchmark.errors import UserError
from pfl_benchmark.studies.grid import Grid, Study
from pfl_benchmark.studies.grid_entries import fixed_fields, refuse_unknown
from pfl_benchmark.studies.grid_file import read_entries
from pfl_benchmark.studies.grid_parts import columns_of, rows_of, section, sections, told

_OF_COMMANDS = ("seeds", "plugins", "profile", "select_on_validation")


def read_study(path: Path) -> Study:
    """The study of a file, named as the file is; its runs are not checked.

    Raises:
        UserError: an entry is unknown, missing or of the wrong type; names the line.
    """
    entries = read_entries(path)
    refuse_unknown(entries)
    if not sections(entries):
        raise UserError(f"{path}: expected a section for a profile, such as [quick] with its settings")
    grids = {}
    for profile in sections(entries):
        own = section(entries, profile)
        for key, entry in own.items():
            if key in _OF_COMMANDS or key.startswith("vary."):
                raise UserError(f"{entry.where}{key}: only the command grid knows it; drop it from a study")
        fixed = fixed_fields(own)
        columns = [replace(each, changes={**fixed, **each.changes}) for each in columns_of(own)]
        grids[profile] = Grid(rows_of(own), tuple(columns))
    return Study(path.stem, grids=grids, **{"title": path.stem, **told(entries)})
