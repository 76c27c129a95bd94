"""HTML, by templates in which everything is escaped unless it was made by one; Markdown by others."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pfl_benchmark.render.forms import printed
from pfl_benchmark.render.table import Table, plain

_HERE = Path(__file__).resolve().parent
_WORTH_A_COLOUR = 0.01  # of difference from the paper's accuracy


def html_table(table: Table) -> Markup:
    """A ``table`` element; the text of figures may be sorted by their attribute ``data-v``."""
    return Markup(template(_HERE / "table.html").module.table(table))


def html_page(table: Table) -> str:
    """A page of a table alone, with its caption and notes."""
    return str(template(_HERE / "table_page.html").render(each=table))


@cache
def template(path: Path) -> Any:
    """A template, which may import ``table.html`` and those of its own folder."""
    loader = FileSystemLoader([path.parent, _HERE])
    environment = Environment(
        loader=loader,
        autoescape=path.suffix == ".html",
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=path.suffix == ".jinja",
    )
    environment.filters |= {"unbroken": _unbroken, "printed": printed, "plain": plain, "near": _near}
    return environment.get_template(path.name)


def _unbroken(head: str) -> str:
    """``CIFAR-10 (100, 2)`` breaks before its bracket only, ``α = 0.3`` not at all."""
    return re.sub(r"\(.*?\)| = ", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), head)


def _near(gap: float) -> str:
    """Class of a difference from the paper's figure."""
    return "near" if abs(round(gap, 4)) < _WORTH_A_COLOUR else "above" if gap > 0 else "below"
