"""Tables and figures in documents that people write, renewed from records.

A document names them in its lines (`present.document`): ``main picture`` for the learning curves of the
main study, ``main table`` for its table as far as there are records, without a paper's figures; ``table
NAME`` for any table that is made from
runs, gaps included, or by a study that computes its tables itself; ``figure NAME`` for a figure of either.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from pfl_benchmark.errors import UserError, unknown
from pfl_benchmark.present.document import Document, lines_of
from pfl_benchmark.present.figures import make_figures
from pfl_benchmark.present.figures.curves import learning_curves
from pfl_benchmark.present.tables import make_table
from pfl_benchmark.records.files import write_bytes
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.formats.markdown import body, escape
from pfl_benchmark.render.picture import Picture
from pfl_benchmark.render.table import Table
from pfl_benchmark.studies.catalogue import STUDIES
from pfl_benchmark.studies.grid import Grid, Profile, Study
from pfl_benchmark.studies.results import Results, collect

Made = TypeVar("Made", Table, Picture)
_FRONT, _CURVES, _TABLE, _FIGURE = "main table", "main picture", "table ", "figure "  # names of parts
PICTURE = "front.png"  # in the results folder
_CAPTION = (
    "Test accuracy in % after the last round (never the best round), ± standard deviation over seeds; "
    "without ±: one seed. Bold: best of its column. †: not significantly worse than that (paired Wilcoxon "
    "test over clients, p ≥ 0.05, Holm-corrected)."
)


@dataclass(frozen=True)
class _Part:
    """What a document gets: text, and above it a picture that is kept in the results folder."""

    text: str
    alt: str = ""
    file: str = ""
    png: bytes = b""

    def markdown(self, root: Path, folder: Path) -> str:
        """The part in a document in `folder`; the picture lies in `root`."""
        if not self.file:
            return self.text
        path = quote(Path(os.path.relpath(root / self.file, folder)).as_posix())
        return f"![{self.alt}]({path})\n\n{self.text}"


def table_names(profile: Profile) -> dict[str, tuple[Study, str]]:
    """Every table that is made from runs, by the name of its files: its study and its kind."""
    return {
        study.table_name(kind): (study, kind)
        for study in STUDIES.values()
        if study.grid(profile).columns and study.computed is None
        for kind in study.tables
    }


def _computing() -> list[Study]:
    """The studies that compute their tables themselves; which tables these are shows only then."""
    return [study for study in STUDIES.values() if study.computed is not None]


def _drawing() -> list[Study]:
    """The studies that have figures; which figures these are shows only when they are drawn."""
    return [study for study in STUDIES.values() if study.figures or study.computed]


def _owner(name: str, studies: Iterable[Study]) -> Study | None:
    """Of `studies`, the one whose name begins that of a table or figure."""
    found = (study for study in studies if f"{name}-".startswith(f"{study.name}-"))
    return max(found, key=lambda study: len(study.name), default=None)


def _named(made: Iterable[Made], name: str, kind: str, root: Path) -> Made:
    """The table or figure of this name, or a UserError."""
    by_name = {one.name: one for one in made}
    if name not in by_name:
        raise UserError(f"there is no {kind} {name}; made in {root}: {', '.join(by_name) or 'none'}")
    return by_name[name]


def _is_made(part: str) -> bool:
    return part in (_FRONT, _CURVES) or part.startswith((_TABLE, _FIGURE))


class DocumentParts:
    """The generated parts of some documents.

    Args:
        only: names of studies; parts of others stay as they are. Empty: all parts are renewed.

    Raises:
        UserError: a document cannot be read, has none of these parts, or an unknown one.
    """

    def __init__(self, paths: Iterable[Path], profile: Profile, only: Iterable[str] = ()) -> None:
        self._profile, self._tables, self._only = profile, table_names(profile), {*only}
        documents = [Document(path) for path in dict.fromkeys(paths)]
        self._wanted = [(document, self._parts(document)) for document in documents]
        self._new: dict[str, _Part] = {}

    def _parts(self, document: Document) -> list[str]:
        """The names of the parts to renew."""
        wanted = [name for name in document.parts if _is_made(name)]
        if not wanted:
            raise UserError(
                f"{document.path} needs the lines {lines_of(_FRONT)}, in this order, "
                "or such lines with 'table NAME' or 'figure NAME'"
            )
        for name in wanted:
            asked = name.partition(" ")[2]
            if name.startswith(_FIGURE) and _owner(asked, _drawing()) is None:
                raise UserError(
                    f"{document.path}: no study draws a figure '{asked}'; names of figures begin with "
                    f"that of their study: {', '.join(study.name for study in _drawing())}"
                )
            if name.startswith(_TABLE) and asked not in self._tables and _owner(asked, _computing()) is None:
                raise UserError(f"{document.path}: {unknown('table', asked, self._tables)}")
        chosen = [name for name in wanted if not self._only or self._study(name) in self._only]
        if not chosen:
            raise UserError(
                f"{document.path} has no table or figure of {', '.join(sorted(self._only))}; drop --only, or "
                f"name one of its studies: {', '.join(sorted({self._study(name) for name in wanted}))}"
            )
        return chosen

    def _study(self, name: str) -> str:
        """The name of the study that a part is of."""
        asked = name.partition(" ")[2]
        if name in (_FRONT, _CURVES):
            return "main"
        if name.startswith(_TABLE) and asked in self._tables:
            return self._tables[asked][0].name
        study = _owner(asked, _drawing() if name.startswith(_FIGURE) else _computing())
        return study.name if study else ""

    def make(self, store: Store, seeds: Sequence[int] | None = None) -> None:
        """Make all parts; nothing is written yet.

        Raises:
            UserError: the main table is wanted, a figure or a computed table, and there is nothing to make it
                from.
        """
        # Once a study, however many of its tables and figures are wanted.
        computed = cache(partial(self._computed, store=store))
        drawn = cache(lambda study: make_figures(collect(STUDIES[study], self._profile, store, seeds)))
        for name in dict.fromkeys(name for _, wanted in self._wanted for name in wanted):
            asked = name.partition(" ")[2]
            if name in (_FRONT, _CURVES):
                self._new[name] = self._front(name, store, seeds)
            elif name.startswith(_FIGURE):
                study = _owner(asked, _drawing())
                assert study is not None  # `_parts` has looked
                made = computed(study.name)[1] if study.computed else drawn(study.name)
                picture = _named(made, asked, "figure", store.root)
                self._new[name] = _Part(
                    escape(picture.caption), escape(picture.title), f"{asked}.png", picture.to_png()
                )
            elif study := _owner(asked, _computing()):
                self._new[name] = _Part(body(_named(computed(study.name)[0], asked, "table", store.root)))
            else:
                study, kind = self._tables[asked]
                self._new[name] = _Part(body(make_table(collect(study, self._profile, store, seeds), kind)))

    def _front(self, name: str, store: Store, seeds: Sequence[int] | None) -> _Part:
        results = _known(self._profile, store, seeds)
        figure = learning_curves(results)
        if figure is None:
            raise UserError(f"there are no records of the study main in {store.root}; make some first")
        if name == _CURVES:
            return _Part("", "Learning curves of the runs in the main table", PICTURE, figure.to_png())
        plain = dataclasses.replace(results, study=dataclasses.replace(results.study, paper=None))
        table = make_table(plain, "accuracy")
        marked = any(cell.short or cell.diverged for cell in table.cells)  # which notes explain
        table = dataclasses.replace(table, caption=_CAPTION, notes=table.notes if marked else ())
        return _Part(f"**{table.title}.**\n\n{body(table)}")

    def _computed(self, study: str, store: Store) -> tuple[list[Table], list[Picture]]:
        computed = STUDIES[study].computed
        return computed.make(self._profile, store) if computed else ([], [])

    def write(self, root: Path) -> list[tuple[Path, list[str], list[str]]]:
        """Write the pictures into the results folder, then the documents.

        Returns:
            The documents, the names of the parts that were renewed, and of those that were not.

        Raises:
            UserError: something cannot be written.
        """
        for part in self._new.values():
            if part.file:
                write_bytes(root / part.file, part.png)
        for document, wanted in self._wanted:
            folder = document.path.parent
            document.save({name: self._new[name].markdown(root, folder) for name in wanted})
        return [
            (document.path, wanted, [name for name in document.parts if not _is_made(name)])
            for document, wanted in self._wanted
        ]


def _known(profile: Profile, store: Store, seeds: Sequence[int] | None) -> Results:
    """The main study without rows and columns that have no record at all."""
    study = STUDIES["main"]
    results = collect(study, profile, store, seeds)
    grid = Grid(
        tuple(v for v in results.grid.variants if any(row == v.title for row, _ in results.records)),
        tuple(c for c in results.grid.columns if c.title in results.begun),
    )
    return collect(dataclasses.replace(study, grids={profile.name: grid}), profile, store, seeds)
