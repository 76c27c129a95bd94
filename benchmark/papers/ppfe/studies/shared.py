"""What the studies have in common (shared.toml), for those that are written in Python."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pfl_benchmark.studies.grid import Column, Study, Variant
from pfl_benchmark.studies.grid_file import Entry, read_entries
from pfl_benchmark.studies.grid_parts import columns_of, rows_of, told
from pfl_benchmark.studies.printed import PrintedTable
from pfl_benchmark.studies.study_file import read_study

_HERE = Path(__file__).parent
_ENTRIES = read_entries(_HERE / "shared.toml")


def rows(*names: str) -> tuple[Variant, ...]:
    """Rows by title, methods at their defaults, and all rows of a list."""
    return rows_of({**_ENTRIES, "algo": Entry(names)})


def columns(*names: str) -> tuple[Column, ...]:
    """Columns by title, plain settings, and all columns of a list."""
    return columns_of({**_ENTRIES, "setting": Entry(names)})


def printed(table: str) -> PrintedTable:
    """A table of the paper by its name: main, sparse, dirichlet, no_mr, fixed_heads or progression."""
    found: PrintedTable = told({**_ENTRIES, "printed": Entry((table,), listed=False)})["paper"]
    return found


@cache
def study(name: str) -> Study:
    """The study of the file of that name."""
    return read_study(_HERE / f"{name}.toml")


METHODS = rows("methods")
