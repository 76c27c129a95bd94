"""The part of one study: its tables with captions and warnings, and its figures."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html import escape

import pandas as pd

from benchmark.present.figures import Picture
from benchmark.present.page.cells import data_cell
from benchmark.present.page.mixtures import in_words, mixed
from benchmark.present.tables import MISSING, WORDS, Table
from benchmark.records.store import Record
from benchmark.studies.grid import Study

__all__ = ["section"]

_POINT = 4 / 3  # CSS pixels
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
    found = mixed(records)
    warning = f'<p class="mixed">Mixes <a href="#environment">{in_words(found)}</a>.</p>' if found else ""
    parts = [_table(study, table, warning) for table in tables]
    return "\n".join([*parts, *(_figure(picture, svg) for picture, svg in figures)])


# -- tables -------------------------------------------------------------------------------------------


def _table(study: Study, table: Table, warning: str) -> str:
    shown, key = _filled(table), f"table-{escape(table.name)}"
    heads = "".join(
        f'<th scope="col" class="{_kind(name)}"><button type="button">{escape(_unbroken(name))}</button></th>'
        for name in map(str, shown.columns)
    )
    empty = _empty(shown)
    rows = "\n".join(
        _row(shown, row, "rule" if place in table.rules else "")
        for place, row in enumerate(shown.itertuples(index=False))
        if place not in empty
    )
    # A study's own table would only repeat its heading.
    title = ' class="unseen"' if table.title == study.title else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    files = ", ".join(
        f'<a href="tables/{escape(table.name)}.{ending}">{name}</a>'
        for name, ending in (("Markdown", "md"), ("CSV", "csv"), ("LaTeX", "tex"))
    )
    about = _sentences(table)
    about += f" Left out here: {len(empty)} rows without a record." if empty else ""
    return (
        f'<figure class="table"><div class="scroll" role="region" tabindex="0" aria-labelledby="{key}">\n'
        f'<table class="sortable"><caption{title} id="{key}">{escape(table.title)}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>\n"
        f"<figcaption>{warning}<p>{about}</p>{f'<ul>{notes}</ul>' if notes else ''}"
        f'<p class="files">Files: {files}</p></figcaption></figure>'
    )


def _sentences(table: Table) -> str:
    """Caption and legend; in tables with the paper's figures also what their colour says."""
    if not table.legend:
        return escape(table.caption)
    text = "Small: the paper's figure, and ours minus the paper's, coloured from one point on."
    return f"{escape(table.caption)} {text}"


def _filled(table: Table) -> pd.DataFrame:
    """`shown` with names where it leaves them out because the row above has them: rows may be sorted."""
    shown = table.shown
    if "method" not in shown or not (shown["method"] == "").any() or len(table.data) != len(shown):
        return shown
    return shown.assign(method=shown["method"].where(shown["method"] != "", "↳ " + table.data["method"]))


def _empty(shown: pd.DataFrame) -> set[int]:
    """Rows without a record, where a row is a method on a setting and there may be dozens of them."""
    if not {"setting", "method"} <= set(shown.columns):
        return set()
    figures = shown.drop(columns=["setting", "method", "stage"], errors="ignore")
    return {place for place, missing in enumerate((figures == MISSING).all(axis=1)) if missing}


def _row(shown: pd.DataFrame, row: Sequence[str], kind: str) -> str:
    first, *others = row
    cells = [f'<th scope="row" class="{_kind(str(shown.columns[0]))}">{escape(first)}</th>']
    cells += [data_cell(text, _kind(str(name))) for name, text in zip(shown.columns[1:], others, strict=True)]
    return f'<tr class="{kind}">{"".join(cells)}</tr>' if kind else f"<tr>{''.join(cells)}</tr>"


def _unbroken(head: str) -> str:
    """``CIFAR-10 (100, 2)`` breaks before its bracket only, ``α = 0.3`` not at all."""
    return re.sub(r"\(.*?\)| = ", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), head)


def _kind(column: str) -> str:
    return "word" if column in WORDS else "figure"


# -- figures ------------------------------------------------------------------------------------------


def _figure(picture: Picture, svg: str) -> str:
    # As a data URI every SVG keeps its own names of clip paths and glyphs, which would collide on one page.
    data = base64.b64encode(svg.encode()).decode()
    size = re.search(r'<svg [^>]*?width="([\d.]+)pt" height="([\d.]+)pt"', svg)
    width, height = (round(float(text) * _POINT) for text in size.groups()) if size else (0, 0)
    area = f' width="{width}" height="{height}" style="min-width: min({width}px, {_LEAST})"' if size else ""
    files = ", ".join(
        f'<a href="figures/{escape(picture.name)}.{ending}">{ending.upper()}</a>' for ending in ("svg", "png")
    )
    return (
        f'<figure class="picture"><div class="scroll" role="region" tabindex="0" '
        f'aria-label="{escape(picture.title)}">\n<div class="card"><img{area} '
        f'alt="{escape(f"{picture.title}. {picture.caption}")}" src="data:image/svg+xml;base64,{data}"></div>'
        f"</div>\n<figcaption><p><strong>{escape(picture.title)}.</strong> {escape(picture.caption)}</p>"
        f'<p class="files">Files: {files}</p></figcaption></figure>'
    )
