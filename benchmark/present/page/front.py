"""Tables and a figure in documents that people write, renewed from records.

A document names them in its lines (`benchmark.present.document`): ``main table`` for the learning curves of
the main study, then its table as far as there are records; ``table NAME`` for any table that is made from
runs, gaps included, or by a study that computes its tables itself.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from urllib.parse import quote

from benchmark.engine.files import write_bytes
from benchmark.errors import UserError, unknown
from benchmark.present.document import Document, lines_of
from benchmark.present.figures.curves import learning_curves
from benchmark.present.tables import make_table
from benchmark.records.store import Store
from benchmark.render.formats.markdown import body
from benchmark.render.table import Table
from benchmark.studies.catalogue import STUDIES
from benchmark.studies.grid import Grid, Profile, Study
from benchmark.studies.results import Results, collect

__all__ = ["PICTURE", "DocumentParts", "table_names"]

_FRONT, _TABLE = "main table", "table "  # names of parts
PICTURE = "front.png"  # in the results folder


def table_names(profile: Profile) -> dict[str, tuple[Study, str]]:
    """Every table that is made from runs, by the name of its files: its study and its kind."""
    return {
        study.table_name(kind): (study, kind)
        for study in STUDIES.values()
        if study.grid(profile).columns and study.computed is None
        for kind in study.tables
    }


def _computing(name: str) -> Study | None:
    """The study that computes the table of this name itself; which tables it has shows only then."""
    computing = (study for study in STUDIES.values() if study.computed is not None)
    return next((study for study in computing if f"{name}-".startswith(f"{study.name}-")), None)


def _named(tables: Iterable[Table], name: str, root: Path) -> Table:
    """The table of this name.

    Raises:
        UserError: there is none.
    """
    made = {table.name: table for table in tables}
    if name not in made:
        raise UserError(f"there is no table {name}; made in {root}: {', '.join(made) or 'none'}")
    return made[name]


class DocumentParts:
    """The generated parts of some documents.

    Raises:
        UserError: a document cannot be read, has none of these parts, or an unknown one.
    """

    def __init__(self, paths: Iterable[Path], profile: Profile) -> None:
        self._profile, self._tables = profile, table_names(profile)
        documents = [Document(path) for path in dict.fromkeys(paths)]
        self._wanted = [(document, self._parts(document)) for document in documents]
        self._new: dict[str, str] = {}
        self._picture: bytes | None = None

    def _parts(self, document: Document) -> list[str]:
        """The names of the parts to renew."""
        wanted = [name for name in document.parts if name == _FRONT or name.startswith(_TABLE)]
        if not wanted:
            raise UserError(
                f"{document.path} needs the lines {lines_of(_FRONT)}, in this order, "
                "or such lines with 'table NAME'"
            )
        for name in wanted:
            table = name.removeprefix(_TABLE)
            if name != _FRONT and table not in self._tables and _computing(table) is None:
                error = unknown("table", table, self._tables)
                raise UserError(f"{document.path}: {error}")
        return wanted

    def make(self, store: Store, seeds: Sequence[int] | None = None) -> None:
        """Make all parts; nothing is written yet.

        Raises:
            UserError: the main table is wanted, or a computed one, and there is nothing to make it from.
        """
        computed = cache(partial(self._computed, root=store.root))  # once a study, however many tables
        for name in {name for _, wanted in self._wanted for name in wanted}:
            if name != _FRONT:
                wanted = name.removeprefix(_TABLE)
                if study := _computing(wanted):
                    self._new[name] = body(_named(computed(study.name), wanted, store.root))
                else:
                    study, kind = self._tables[wanted]
                    self._new[name] = body(make_table(collect(study, self._profile, store, seeds), kind))
                continue
            results = _known(self._profile, store, seeds)
            figure = learning_curves(results)
            if figure is None:
                raise UserError(f"there are no records of the study main in {store.root}; make some first")
            self._picture = figure.to_png()
            table = make_table(results, "accuracy")
            self._new[name] = f"**{table.title}.**\n\n{body(table)}"

    def _computed(self, study: str, root: Path) -> list[Table]:
        computed = STUDIES[study].computed
        return computed.make(self._profile, root)[0] if computed else []

    def write(self, root: Path) -> list[tuple[Path, list[str]]]:
        """Write the picture of the main table into the results folder, then the documents.

        Returns:
            The documents and the names of their parts.

        Raises:
            UserError: something cannot be written.
        """
        if self._picture is not None:
            write_bytes(root / PICTURE, self._picture)
        for document, wanted in self._wanted:
            place = quote(Path(os.path.relpath(root / PICTURE, document.path.parent)).as_posix())
            picture = f"![Learning curves of the runs in the table]({place})\n\n"
            document.save({name: picture * (name == _FRONT) + self._new[name] for name in wanted})
        return [(document.path, wanted) for document, wanted in self._wanted]


def _known(profile: Profile, store: Store, seeds: Sequence[int] | None) -> Results:
    """The main study without rows and columns that have no record at all."""
    study = STUDIES["main"]
    results = collect(study, profile, store, seeds)
    grid = Grid(
        tuple(v for v in results.grid.variants if any(row == v.title for row, _ in results.records)),
        tuple(c for c in results.grid.columns if any(column == c.title for _, column in results.records)),
    )
    return collect(dataclasses.replace(study, grids={profile.name: grid}), profile, store, seeds)
