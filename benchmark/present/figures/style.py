"""The common look: sizes, colours that colour-blind readers can tell apart, labels beside their lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

# Paul Tol's "muted" scheme, which is safe for all common kinds of colour blindness; grey and black added.
_METHODS = {
    "Local Only": "#8a8a8a",
    "FedAvg": "#332288",
    "FedAvg+FT": "#88ccee",
    "Ditto": "#44aa99",
    "FedBABU": "#117733",
    "FedRep": "#999933",
    "FedPer": "#ddcc77",
    "LG-FedAvg": "#cc6677",
    "pFedFDA": "#aa4499",
    "PPFE": "#000000",
}
_OTHERS = tuple(to_hex(colormaps[name](i)) for name in ("tab20", "tab20b") for i in range(20))

_TOP, _BOTTOM = 0.34, 0.66  # inches above and below a panel
LINE_HEIGHT = 0.135  # inches between labels
_GAP = 0.15  # share of a panel's width that lies between columns of labels


@dataclass(frozen=True)
class End:
    """Where a line ends, and what it is called.

    Attributes:
        strong: the line that the figure is about.
    """

    x: float
    y: float
    text: str
    color: str
    strong: bool = False


def color_of(method: str, place: int = 0) -> str:
    """The colour of a method of the paper, the same in every figure; others get one by their place."""
    return _METHODS.get(method, _OTHERS[place % len(_OTHERS)])


def panels(
    titles: Sequence[str],
    width: float,
    height: float,
    left: float = 0.6,
    right: float = 0.15,
    first: float | None = None,
) -> tuple[Figure, list[Axes]]:
    """A figure of one panel for each title, at most three in a row and four in a square; sizes in inches.

    Args:
        width, height: of a panel.
        left: room for the tick labels and the label of each panel's vertical axis.
        right: room for labels at the right of each panel.
        first: `left` of the first panel of a row, if it differs.
    """
    columns = 2 if len(titles) == 4 else min(3, len(titles))  # four: a square, no hole
    rows = math.ceil(len(titles) / columns)
    start = left if first is None else first
    total = start + (columns - 1) * left + columns * (width + right)
    tall = rows * (_TOP + height + _BOTTOM)
    figure = Figure(figsize=(total, tall))
    FigureCanvasAgg(figure)
    axes = []
    for place, text in enumerate(titles):
        row, column = divmod(place, columns)
        x = start + column * (left + width + right)
        y = tall - row * (height + _TOP + _BOTTOM) - _TOP - height
        axis = figure.add_axes((x / total, y / tall, width / total, height / tall))
        # With `y` given the title is not moved out of the way of ticks, which takes long to find out.
        axis.set_title(text, loc="left", pad=7, y=1.0, fontweight="bold")
        axes.append(axis)
    return figure, axes


def tidy(axis: Axes, x_label: str, y_label: str) -> None:
    """Label the axes and keep ticks few."""
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    axis.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))


def name_lost(axis: Axes, rows: Sequence[str]) -> None:
    """Name in a corner of the panel the methods that have no line, since their training diverged."""
    if rows:
        text = f"diverged: {', '.join(rows)}"
        axis.text(
            0.02, 0.02, text, transform=axis.transAxes, fontsize=7.5, fontstyle="italic", zorder=6,
            path_effects=[withStroke(linewidth=2.5, foreground="white")], wrap=True,
        )  # fmt: skip


def label_ends(axis: Axes, ends: Sequence[End]) -> None:
    """Write the name of every line beside its end, none on top of another.

    Names stand in columns, each right of the ends that it belongs to and joined to them; the last column is
    outside of the panel. The panel's limits must be final.
    """
    left, right = axis.get_xlim()

    def across(end: End) -> float:
        return (end.x - left) / (right - left)

    group: list[End] = []
    for end in sorted(ends, key=across):
        if group and across(end) - across(group[-1]) > _GAP:
            _write_column(axis, group, across(group[-1]) + 0.035)
            group = []
        group.append(end)
    if group:
        outside = across(group[-1]) > 1 - _GAP
        _write_column(axis, group, 1.045 if outside else across(group[-1]) + 0.035)


def _write_column(axis: Axes, ends: Sequence[End], across: float) -> None:
    """Write names in a column at `across`, in shares of the panel's width."""
    halo: dict[str, Any] = (
        {} if across > 1 else {"path_effects": [withStroke(linewidth=2.5, foreground="white")]}
    )
    (left, right), (low, high) = axis.get_xlim(), axis.get_ylim()
    figure = axis.get_figure(root=True)
    assert figure is not None
    height = axis.get_position().height * figure.get_size_inches()[1]
    order = sorted(ends, key=lambda end: end.y)
    tips = [((end.x - left) / (right - left), (end.y - low) / (high - low)) for end in order]
    places = spread_out([y for _, y in tips], LINE_HEIGHT / height)
    for end, tip, place in zip(order, tips, places, strict=True):
        weight = "bold" if end.strong else "normal"
        axis.text(
            across, place, end.text, transform=axis.transAxes, va="center", fontsize=7.5, fontweight=weight,
            zorder=6, **halo,
        )  # fmt: skip
        joint = Line2D(
            (tip[0], across - 0.008), (tip[1], place), transform=axis.transAxes, clip_on=False,
            color=end.color, linewidth=0.7, zorder=2,
        )  # fmt: skip
        axis.add_line(joint)


def spread_out(wanted: Sequence[float], distance: float) -> list[float]:
    """Places as near as possible to the `wanted` ones (increasing), at least `distance` apart, within 0..1.

    Where there are too many for 0..1 they go on below it.
    """
    from scipy.optimize import isotonic_regression  # takes long to import

    steps = distance * np.arange(len(wanted))
    room = 1 - steps[-1]
    return list(isotonic_regression(wanted - steps).x.clip(min(0, room), room) + steps)
