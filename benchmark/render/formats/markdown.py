"""Markdown, as GitHub reads it."""

from __future__ import annotations

import re

from tabulate import tabulate

from pfl_benchmark.render.registry import register
from pfl_benchmark.render.table import Cell, Table, in_brackets

# What would be markup. A bar, a star or a tag begins anywhere, an underline only at the edge of a word.
_MARKUP = re.compile(r"[\\`*|\[\]]|~(?=~)|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<!\w)_|_(?!\w)")
_PAPER = "In brackets: the paper's figure, and ours minus the paper's."


@register("md", "Markdown")
def markdown(table: Table) -> str:
    """Heading, table, caption and notes."""
    return f"## {escape(table.title)}\n\n{body(table)}\n"


def body(table: Table) -> str:
    """Table, caption and notes, for documents that have headings of their own."""
    notes = "".join(f"\n- {escape(note)}" for note in table.notes)
    caption = f"{escape(table.caption)} {_PAPER if table.has_paper else ''}".strip()
    return f"{grid(table)}\n\n{caption}\n{notes}".rstrip()


def grid(table: Table) -> str:
    """The table alone."""
    return tabulate(
        [[_cell(cell) for cell in row] for row in table.rows],
        headers=[escape(head.text) for head in table.heads],
        tablefmt="pipe",
        disable_numparse=True,
        colalign=["left" if head.words else "right" for head in table.heads],
    )


def _cell(cell: Cell) -> str:
    if cell.again:
        return ""
    text = escape(cell.text) + (f" ± {cell.around}" if cell.around else "")
    text = " ".join([f"**{text}**" if cell.best else text, *cell.marks])
    beside = in_brackets(cell)
    return f"{text} ({escape(beside)})" if beside else text


def escape(text: str) -> str:
    """Plain text as one line of Markdown: what would be markup is escaped."""
    return _MARKUP.sub(lambda found: "\\" + found[0], " ".join(text.split("\n")))
