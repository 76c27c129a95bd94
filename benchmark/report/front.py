"""Tables and a figure in documents that people write, renewed from records.

A document says where they belong by two lines, ``<!-- main table: begin -->`` and one that ends with ``end``:
the main table as far as there are records, with its learning curves. ``table NAME`` instead of ``main table``
stands for any table of tables/, gaps included.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from benchmark.document import marks, parts, read, with_part
from benchmark.engine.files import write_bytes, write_text
from benchmark.errors import UserError, unknown
from benchmark.figures import FIGURES
from benchmark.store import Store
from benchmark.studies.catalogue import STUDIES
from benchmark.studies.grid import Grid, Profile
from benchmark.studies.results import Results, collect
from benchmark.tables import TABLES, Table, make_tables

__all__ = ["PICTURE", "check_document", "write_parts"]

_FRONT, _TABLE = "main table", "table "  # names of parts
PICTURE = "front.png"  # in the results folder


def check_document(document: Path) -> list[str]:
    """The names of the parts that a document asks for.

    Raises:
        UserError: it cannot be read, has no marks, marks of something unknown, or not in pairs.
    """
    text = read(document)
    wanted = [name for name in parts(text) if name == _FRONT or name.startswith(_TABLE)]
    if not wanted:
        marks(text, _FRONT)
    for name in wanted:
        marks(text, name)
    return wanted


def write_parts(
    document: Path, profile: Profile, store: Store, seeds: Sequence[int] | None = None
) -> list[str]:
    """Renew the parts of a document, and draw the figure of the main table into the results folder.

    Returns:
        Their names.

    Raises:
        UserError: as `check_document`, or there are no records; the document stays as it was.
    """
    wanted, text, picture = check_document(document), read(document), None
    for name in wanted:
        if name == _FRONT:
            results = _known(profile, store, seeds)
            figure = FIGURES["learning-curves"](results)
            if figure is None:
                raise UserError(f"there are no records of the study main in {store.root}; make some first")
            picture = figure.to_png()
            part = _front(results, os.path.relpath(store.root / PICTURE, document.parent))
        else:
            part = _body(_find_table(name.removeprefix(_TABLE), profile, store, seeds))
        text = with_part(text, name, part)
    write_text(document, text)
    if picture is not None:
        write_bytes(store.root / PICTURE, picture)
    return wanted


def _front(results: Results, picture: str) -> str:
    """Markdown of the study's own table and of the figure that lies at `picture`."""
    table = TABLES["accuracy"](results)
    return f"**{table.title}.**\n\n{_body(table)}\n\n![Learning curves of the runs in the table]({picture})"


def _body(table: Table) -> str:
    """Without its own heading, which would stand above those of the document."""
    return table.to_markdown().split("\n", 1)[1].strip()


def _find_table(name: str, profile: Profile, store: Store, seeds: Sequence[int] | None) -> Table:
    known = []
    for study in STUDIES.values():
        if study.computed or not study.grid(profile).columns:
            continue
        if name == study.name or name.startswith(f"{study.name}-"):
            for table in make_tables(collect(study, profile, store, seeds)):
                if table.name == name:
                    return table
        known.append(study.name)
    raise unknown("table", name, known)


def _known(profile: Profile, store: Store, seeds: Sequence[int] | None) -> Results:
    """The main study without rows and columns that have no record at all."""
    study = STUDIES["main"]
    results = collect(study, profile, store, seeds)
    grid = Grid(
        tuple(v for v in results.grid.variants if any(row == v.title for row, _ in results.records)),
        tuple(c for c in results.grid.columns if any(column == c.title for _, column in results.records)),
    )
    return collect(dataclasses.replace(study, grids={profile.name: grid}), profile, store, seeds)
