"""Where things stand in a figure: panels, the legend below them, and what is said of diverged runs."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pfl_benchmark.render.style import COLUMN, PAGE, SMALL, STRONG, Look

_TOP, _BOTTOM = 0.3, 0.53  # inches above and below a panel
LINE_HEIGHT = 0.125  # inches from line to line of small text
_LETTER = 0.054  # inches, the width of a small one
_SAMPLE = 0.42  # inches, of a legend's line and what stands beside it


def panels(
    titles: Sequence[str],
    height: float,
    labels: Sequence[Sequence[str]] = (),
    width: float = 0,
    left: float = 0.45,
    right: float = 0.1,
    first: float | None = None,
) -> tuple[Figure, list[Axes]]:
    """A figure of one panel for each title, at most three in a row and four in a square; sizes in inches.

    Args:
        height, width: of a panel; without a width, one panel is as wide as a column, more are as a page.
        labels: of the legends below all panels, from the top.
        left: room for the tick labels and the label of each panel's vertical axis.
        right: room at the right of each panel.
        first: `left` of the first panel of a row, if it differs.
    """
    columns = 2 if len(titles) == 4 else min(3, len(titles))  # four: a square, no hole
    rows = math.ceil(len(titles) / columns)
    start = left if first is None else first
    around = start + (columns - 1) * left + columns * right
    width = width or ((COLUMN if columns == 1 else PAGE) - around) / columns
    total = around + columns * width
    below = 1.2 * LINE_HEIGHT * sum(_lines(some, total) for some in labels)
    tall = rows * (_TOP + height + _BOTTOM) + below
    figure = Figure(figsize=(total, tall))
    FigureCanvasAgg(figure)
    axes = []
    for place, text in enumerate(titles):
        row, column = divmod(place, columns)
        x = start + column * (left + width + right)
        y = tall - row * (height + _TOP + _BOTTOM) - _TOP - height
        axis = figure.add_axes((x / total, y / tall, width / total, height / tall))
        # With `y` given the title is not moved out of the way of ticks, which takes long to find out.
        axis.set_title(text, loc="left", pad=9, y=1.0, fontweight="bold")
        axes.append(axis)
    return figure, axes


def _beside(labels: Sequence[str], total: float) -> int:
    """How many entries of a legend stand in a line."""
    longest = max(map(len, labels), default=0)
    return max(1, min(len(labels), int(total / (_SAMPLE + _LETTER * longest))))


def _lines(labels: Sequence[str], total: float) -> int:
    return math.ceil(len(labels) / _beside(labels, total))


def labels_of(*legends: Sequence[Any]) -> list[list[str]]:
    """The labels of the handles of legends."""
    return [[str(handle.get_label()) for handle in handles] for handles in legends]


def legend(figure: Figure, *legends: Sequence[Any]) -> None:
    """The legends for which `panels` has left room."""
    total, tall = figure.get_size_inches()
    below = 0.0
    for handles, labels in reversed([*zip(legends, labels_of(*legends), strict=True)]):
        figure.legend(
            handles=handles, loc="lower center", ncols=_beside(labels, total), frameon=False,
            handlelength=2.4, columnspacing=1, handletextpad=0.5, labelspacing=0.3, borderpad=0,
            borderaxespad=0.3, bbox_to_anchor=(0.5, below / tall),
        )  # fmt: skip
        below += LINE_HEIGHT * 1.2 * _lines(labels, total)


def sample(label: str, look: Look, strong: bool = False) -> Line2D:
    """A line's entry in the legend."""
    width = STRONG if strong else 1.1
    return Line2D(
        [],
        [],
        color=look.color,
        linestyle=look.dashes,
        linewidth=width,
        label=label,
        marker="o",
        markersize=3,
    )


def tidy(axis: Axes, x_label: str, y_label: str) -> None:
    """Label the axes and keep ticks few."""
    axis.set_xlabel(x_label, labelpad=2)
    axis.set_ylabel(y_label, labelpad=2)
    axis.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))


def name_lost(axis: Axes, rows: Sequence[str]) -> None:
    """Name the methods that have no line, since their training diverged, in a free strip below the lines."""
    if not rows:
        return
    figure = axis.get_figure(root=True)
    assert figure is not None
    box, (width, height) = axis.get_position(), figure.get_size_inches()
    lines = textwrap.wrap(f"diverged: {', '.join(rows)}", max(12, int(box.width * width / _LETTER)))
    share = LINE_HEIGHT * (len(lines) + 0.5) / (box.height * height)
    low, high = axis.get_ylim()
    axis.set_ylim(low - (high - low) * share / (1 - share), high)
    text = "\n".join(lines)
    axis.text(0.02, 0.02, text, transform=axis.transAxes, fontsize=SMALL, fontstyle="italic", va="bottom")
