"""From records to files: tables in every format, figures as SVG and PNG, parts of the report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.present.files import RenderedFiles, renderer_digest, section_file
from benchmark.records.store import Record, Store
from benchmark.studies import computed
from benchmark.studies.grid import Profile, Study
from benchmark.studies.results import Results, collect

if TYPE_CHECKING:
    from benchmark.render.picture import Picture
    from benchmark.render.table import Table

__all__ = ["make", "render", "with_rendered"]


def render(
    studies: Sequence[Study],
    profile: Profile,
    store: Store,
    seeds: Sequence[int] | None = None,
    again: bool = False,
) -> list[str]:
    """Write the tables and figures of `studies` below the store's folder, as far as they have changed.

    Args:
        seeds: the only ones to use; None stands for all that have records.
        again: also write what has not changed.

    Returns:
        The names of the studies that were written.

    Raises:
        UserError: the folder cannot be written.
    """
    rendered, code, written = RenderedFiles(store.root), renderer_digest(), []
    for study in studies:
        results = None if study.computed else collect(study, profile, store, seeds)
        source = results.fingerprint() if results else computed.fingerprint(study, store.root)
        fingerprint = hashlib.sha256(f"{code} {source}".encode()).hexdigest()
        if rendered.is_current(study.name, fingerprint) and not again:
            continue
        records = results.all() if results else []
        tables, figures = _make(study, profile, store, results)
        rendered.write(study.name, fingerprint, _files(study, tables, figures, records))
        written.append(study.name)
    return written


def make(
    study: Study, profile: Profile, store: Store, seeds: Sequence[int] | None = None
) -> tuple[list[Table], list[Picture]]:
    """All tables and figures of one study, from its records."""
    return _make(study, profile, store, None if study.computed else collect(study, profile, store, seeds))


def with_rendered(
    chosen: Sequence[Study], known: Iterable[Study], profile: Profile, root: Path
) -> list[Study]:
    """Those of the `known` studies that are chosen or have left files of the profile in a results folder."""
    rendered = RenderedFiles(root)
    return [
        study
        for study in known
        if study in chosen or (study.belongs_to(profile) and rendered.files(study.name))
    ]


def _make(
    study: Study, profile: Profile, store: Store, results: Results | None
) -> tuple[list[Table], list[Picture]]:
    # Matplotlib, pandas and SciPy take a second to import, which a call without anything to do saves.
    from benchmark.present.figures import make_figures
    from benchmark.present.tables import make_tables

    if results is None:
        return computed.make(study, profile, store.root)
    return make_tables(results), make_figures(results)


def _files(
    study: Study, tables: Sequence[Table], figures: Sequence[Picture], records: Sequence[Record]
) -> dict[str, str | bytes]:
    from benchmark.present.page.section import section
    from benchmark.render.formats import FORMATS

    files: dict[str, str | bytes] = {}
    for table in tables:
        files |= {f"tables/{table.name}.{ending}": form.write(table) for ending, form in FORMATS.items()}
    drawn = [(picture, picture.to_svg()) for picture in figures]
    for picture, svg in drawn:
        files[f"figures/{picture.name}.svg"] = svg
        files[f"figures/{picture.name}.png"] = picture.to_png()
    files[section_file(study.name)] = section(study, tables, drawn, records)
    return files
