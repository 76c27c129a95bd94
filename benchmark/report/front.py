"""The front of a document: the main table as far as there are records, and its learning curves."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from benchmark.document import renew
from benchmark.engine.files import write_bytes
from benchmark.errors import UserError
from benchmark.figures import FIGURES
from benchmark.store import Store
from benchmark.studies.catalogue import STUDIES
from benchmark.studies.grid import Grid, Profile
from benchmark.studies.results import Results, collect
from benchmark.tables import TABLES

__all__ = ["PART", "front", "write_front"]

PART = "main table"  # name of the marks between which it belongs
PICTURE = "front.png"  # in the results folder


def front(results: Results, picture: str) -> str:
    """Markdown of the study's own table and of the figure that lies at `picture`."""
    table = TABLES["accuracy"](results)
    # Its own heading would stand above those of the document.
    body = table.to_markdown().split("\n", 1)[1].strip()
    return f"**{table.title}.**\n\n{body}\n\n![Learning curves of the runs in the table]({picture})"


def write_front(document: Path, profile: Profile, store: Store, seeds: Sequence[int] | None = None) -> None:
    """Renew the main table in a document and draw its figure into the results folder.

    Raises:
        UserError: the document has no marks for it, there are no records, or something cannot be written.
    """
    results = _known(profile, store, seeds)
    figure = FIGURES["learning-curves"](results)
    if figure is None:
        raise UserError(f"there are no records of the study main in {store.root}; make some first")
    renew(document, PART, front(results, os.path.relpath(store.root / PICTURE, document.parent)))
    write_bytes(store.root / PICTURE, figure.to_png())


def _known(profile: Profile, store: Store, seeds: Sequence[int] | None) -> Results:
    """The main study without rows and columns that have no record at all."""
    study = STUDIES["main"]
    results = collect(study, profile, store, seeds)
    grid = Grid(
        tuple(v for v in results.grid.variants if any(row == v.title for row, _ in results.records)),
        tuple(c for c in results.grid.columns if any(column == c.title for _, column in results.records)),
    )
    return collect(dataclasses.replace(study, grids={profile.name: grid}), profile, store, seeds)
