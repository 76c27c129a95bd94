"""The look of all figures: Matplotlib's settings, widths of a paper's columns, colours with line styles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

COLUMN, PAGE = 3.3, 6.9  # widths of a paper's column and of its page, inches
GREY, INK = "#5f5f5f", "#222222"
SMALL = 7.0  # points
STRONG = 1.8  # points, the line that a figure is about

SETTINGS: dict[Any, Any] = {
    "font.size": 7.5,
    "text.parse_math": False,  # titles may have $
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.5,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "axes.labelcolor": INK,
    "lines.linewidth": 1.1,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "pfl-benchmark",  # the same figure is the same file
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
}


@dataclass(frozen=True)
class Look:
    """How the line of a method is drawn."""

    color: str
    dashes: Any = "-"


_SHORT, _LONG, _MIXED = (0, (2.5, 1.2)), (0, (6, 1.5)), (0, (5, 1.2, 1.2, 1.2))
# Colours of Okabe and Ito (2008) and of Paul Tol, told apart with all common kinds of colour blindness. Lines
# of about the same grey have other dashes.
LOOKS = (
    Look("#000000"),
    Look("#0072b2"),
    Look("#56b4e9", _LONG),
    Look("#d55e00"),
    Look("#009e73", _SHORT),
    Look("#e69f00"),
    Look("#cc79a7", _MIXED),
    Look("#882255", _LONG),
    Look("#999933", _SHORT),
    Look("#44aa99", _MIXED),
    Look("#332288", _SHORT),
    Look("#8c5a2b", _MIXED),
)
REST = Look("#b8b8b8")  # of those beyond the twelve
# Methods that have the same look in every figure.
_ALWAYS = (
    "PPFE", "FedAvg", "FedAvg+FT", "Ditto", "FedBABU", "FedRep", "FedPer", "LG-FedAvg", "Local Only",
    "pFedFDA",
)  # fmt: skip


def looks(names: Sequence[str]) -> dict[str, Look]:
    """A look for each name: its own, else one that is free; beyond twelve all are grey."""
    found = {name: LOOKS[_ALWAYS.index(name)] for name in names if name in _ALWAYS}
    free = [look for look in LOOKS if look not in found.values()]
    for name in names:
        if name not in found:
            found[name] = free.pop(0) if free else REST
    return found
