"""The part of one study: its first table and figure, then the others, folded."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from html import unescape
from pathlib import Path

from pfl_benchmark.present.page.mixtures import in_words, mixed
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.formats import FORMATS
from pfl_benchmark.render.markup import template
from pfl_benchmark.render.picture import Picture
from pfl_benchmark.render.table import Table
from pfl_benchmark.studies.grid import Study

_PIXELS = 130  # of CSS, an inch: figures are drawn for the columns of a paper
_COMMON = re.compile(r'<span class="common" data-kind="(\d+)">(.*?)</span> ?')
_LEAST = "34rem"  # width below which a figure is scrolled rather than made smaller


def section(
    study: Study,
    tables: Sequence[Table],
    figures: Sequence[tuple[Picture, str]],
    records: Sequence[Record],
    common: Sequence[str] = (),
) -> str:
    """Tables and figures of a study as HTML, without heading.

    Args:
        figures: each with its SVG.
        records: all that the tables are made from.
        common: sentences of captions that `without_common` may say once for a page.
    """
    if not tables or not (records or study.computed):
        return '<p class="empty">No record yet, so no tables and figures here.</p>'
    return template(Path(__file__).with_name("section.html")).render(
        tables=tables,
        mixed=in_words(mixed(records)),
        empty=_empty,
        formats={ending: form.title for ending, form in FORMATS.items()}
        | ({"html": "HTML"} if study.prints else {}),
        endings=("svg", "png", "pdf") if study.prints else ("svg", "png"),
        pictures=[_picture(picture, svg) for picture, svg in figures],
        least=_LEAST,
        caption=partial(_caption, common=common),
    )


def without_common(parts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Parts of studies without the sentences that most of their captions have, and these sentences."""
    kinds: dict[str, Counter[str]] = {}
    for kind, text in (found for part in parts for found in _COMMON.findall(part)):
        kinds.setdefault(kind, Counter())[text] += 1
    usual = {kind: kinds[kind].most_common(1)[0][0] for kind in sorted(kinds)}

    def left(found: re.Match[str]) -> str:
        return "" if usual[found[1]] == found[2] else found[0]

    return [_COMMON.sub(left, part) for part in parts], [unescape(text) for text in usual.values()]


def _caption(text: str, common: Sequence[str]) -> tuple[str, list[tuple[int, str]]]:
    """A caption's own sentences, and those that are among the `common` ones, by kind."""
    found = []
    for kind, sentence in enumerate(common):
        if sentence and sentence in text:
            text = text.replace(sentence, "")
            found.append((kind, f"{sentence[0].upper()}{sentence[1:].rstrip(';.')}."))
    return " ".join(text.split()), found


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
