"""The cells of tables, as HTML: what Markdown marks, and numbers that sort."""

from __future__ import annotations

import re
from html import escape

from benchmark.present.tables.table import MISSING

__all__ = ["data_cell", "number"]

# As `benchmark.present.tables` writes cells: **87.28 ± 0.12** † ‡ (86.58, +0.70)
_CELL = re.compile(
    r"(?P<bold>\*\*)?(?P<value>.*?)(?: ± (?P<std>[\d.]+))?(?(bold)\*\*)(?P<marks>(?: [†‡])*)"
    r"(?: \((?P<paper>[\d.]+), (?P<difference>[+−][\d.]+)\))?"
)
_NUMBER = re.compile(r"(<? ?)([+−-]?)(\d[\d,]*(?:\.\d+)?)(?:%| %| (B|kB|MB|GB|TB))?(?= |$)")
_UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_WORTH_A_COLOUR = 1.0  # points of difference from the paper


def number(text: str) -> float | None:
    """What a cell's text sorts by: its first number, sizes in bytes; None where it begins with none."""
    found = _NUMBER.match(text.removeprefix("**"))
    if found is None:
        return None
    below, sign, digits, unit = found.groups()
    value = float(digits.replace(",", "")) * _UNITS.get(unit or "", 1.0)
    value *= 0.999 if below else 1.0  # "< 0.001" comes before 0.001
    return -value if sign in ("−", "-") else value


def data_cell(text: str, kind: str) -> str:
    """One ``td``.

    Args:
        text: as a `benchmark.present.tables.Table` shows it.
        kind: class of the cell.
    """
    if text in ("", MISSING):
        return f'<td class="{kind} missing">{text}</td>'
    value = number(text.replace("**", ""))
    key = "" if value is None else f' data-v="{value:.10g}"'
    return f'<td class="{kind}"{key}>{_content(text)}</td>'


def _content(text: str) -> str:
    found = _CELL.fullmatch(text)
    if found is None:
        return escape(text)
    shown = escape(found["value"])
    if found["std"]:
        shown += f' <span class="std">± {found["std"]}</span>'
    if found["bold"]:
        shown = f"<strong>{shown}</strong>"
    if found["marks"]:
        shown += f'<span class="marks">{found["marks"]}</span>'
    if found["paper"]:
        shown += f' <span class="paper">paper {found["paper"]} {_difference(found["difference"])}</span>'
    return shown


def _difference(text: str) -> str:
    points = number(text) or 0.0
    kind = "near" if abs(points) < _WORTH_A_COLOUR else "above" if points > 0 else "below"
    return f'<span class="{kind}">{text}</span>'
