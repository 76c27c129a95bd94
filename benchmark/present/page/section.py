"""The part of one study: its tables with captions and warnings, and its figures."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from pfl_benchmark.present.page.mixtures import in_words, mixed
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.formats import FORMATS
from pfl_benchmark.render.markup import template
from pfl_benchmark.render.picture import Picture
from pfl_benchmark.render.table import Table
from pfl_benchmark.studies.grid import Study

_PIXELS = 96  # of CSS, an inch
_LEAST = "34rem"  # width below which a figure is scrolled rather than made smaller


def section(
    study: Study, tables: Sequence[Table], figures: Sequence[tuple[Picture, str]], records: Sequence[Record]
) -> str:
    """Tables and figures of a study as HTML, without heading.

    Args:
        figures: each with its SVG.
        records: all that the tables are made from.
    """
    if not tables or not (records or study.computed):
        return '<p class="empty">No record yet, so no tables and figures here.</p>'
    return template(Path(__file__).with_name("section.html")).render(
        study=study,
        tables=tables,
        mixed=in_words(mixed(records)),
        empty=_empty,
        formats={ending: form.title for ending, form in FORMATS.items()}
        | ({"html": "HTML"} if study.prints else {}),
        endings=("svg", "png", "pdf") if study.prints else ("svg", "png"),
        pictures=[_picture(picture, svg) for picture, svg in figures],
        least=_LEAST,
    )


def _empty(table: Table) -> set[int]:
    """Rows without a record, where a row is a method on a setting and there may be dozens of them."""
    heads = [head.text for head in table.heads]
    if not {"setting", "method"} <= set(heads):
        return set()
    figures = [column for column, head in enumerate(heads) if head not in ("setting", "method", "stage")]
    return {i for i, row in enumerate(table.rows) if all(row[column].value is None for column in figures)}


def _picture(picture: Picture, svg: str) -> dict[str, object]:
    # As a data URI every SVG keeps its own names of clip paths and glyphs, which would collide on one page.
    width, height = (round(_PIXELS * inches) for inches in picture.figure.get_size_inches())
    return {
        "name": picture.name,
        "title": picture.title,
        "caption": picture.caption,
        "width": width,
        "height": height,
        "data": base64.b64encode(svg.encode()).decode(),
    }
