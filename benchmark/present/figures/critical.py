"""The critical-difference diagram (Demšar, JMLR 7, 2006): average ranks, and which of them do not differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes

from pfl_benchmark.present.across import Across
from pfl_benchmark.present.figures.style import LINE_HEIGHT, panels
from pfl_benchmark.present.tables.over_settings import LEAST, blocks_of
from pfl_benchmark.render.picture import Picture, styled
from pfl_benchmark.render.style import COLUMN, GREY, SMALL
from pfl_benchmark.studies.friedman import groups
from pfl_benchmark.studies.results import Results
from pfl_benchmark.studies.statistics import LEVEL

_LINE = 1.5 * LINE_HEIGHT  # inches between labels
_BAR = 0.075  # inches between the lines of groups
_BELOW = 0.45  # inches below a panel, where others have the label of their axis
_HEAD = 0.42  # inches above the axis: tick labels and the critical difference


def critical_differences(methods: Sequence[str], ranks: np.ndarray, distance: float, over: str) -> Picture:
    """Average ranks on an axis, the best at the right; thick lines join methods that do not differ.

    Args:
        ranks: average ranks [methods], 1 is the best.
        distance: the critical difference.
        over: what ranks were averaged over, such as ``15 settings``.
    """
    order = np.argsort(ranks, kind="stable")
    joined = groups(ranks, distance)
    levels = _levels([(ranks[group[0]], ranks[group[-1]]) for group in joined])
    bars = _BAR * (max(levels, default=-1) + 2)
    height = _HEAD + bars + _LINE * ((len(order) + 1) // 2) - _BELOW
    side = 0.2 + 0.055 * max(len(methods[place]) + 6 for place in order)
    width = max(COLUMN - 2 * side, 0.16 * len(order), 1.2)
    with styled():
        figure, (panel,) = panels(["Average ranks"], height, width=width, left=side, right=side)
        panel.set_axis_off()
        panel.set_xlim(len(order) + 0.05, 0.95)
        panel.set_ylim(_HEAD - height, _HEAD)  # inches, the axis at 0
        _axis(panel, len(order), distance)
        for group, level in zip(joined, levels, strict=True):
            y = -_BAR * (level + 1)
            ends = [ranks[group[0]] - 0.04, ranks[group[-1]] + 0.04]
            panel.plot(ends, [y, y], color="black", linewidth=3, solid_capstyle="butt")
        _labels(panel, [methods[place] for place in order], ranks[order], bars)
    caption = (
        f"Average ranks by test accuracy over {over}, 1 is the best. Thick "
        "lines join methods whose average ranks differ by less than the critical difference "
        f"CD = {distance:.2f} (Nemenyi test, {LEVEL}); it holds if the Friedman test finds a difference."
    )
    return Picture("critical-difference", "Average ranks", caption, figure)


def critical_difference(results: Results) -> Picture | None:
    """The diagram over all settings of a study of which every method has a record."""
    blocks = blocks_of(results)
    if len(set(blocks.settings)) < LEAST or len(blocks.methods) < 3:
        return None
    found = Across(blocks)
    assert found.critical_difference is not None
    drawn = critical_differences(
        found.blocks.methods, found.ranks, found.critical_difference, f"{len(found.means)} {found.over}"
    )
    return replace(drawn, caption=results.profile.warned(drawn.caption))


def _axis(panel: Axes, methods: int, distance: float) -> None:
    panel.plot([1, methods], [0, 0], color=GREY, linewidth=0.9)
    for rank in range(1, methods + 1):
        panel.plot([rank, rank], [0, 0.05], color=GREY, linewidth=0.9)
        panel.text(rank, 0.07, str(rank), ha="center", va="bottom", fontsize=SMALL)
    start, end = methods, methods - distance  # beyond the axis where no ranks can differ
    panel.plot([start, end], [0.27, 0.27], color="black", linewidth=1.3, clip_on=False)
    for x in (start, end):
        panel.plot([x, x], [0.24, 0.30], color="black", linewidth=0.9, clip_on=False)
    panel.text((start + end) / 2, 0.31, f"CD = {distance:.2f}", ha="center", va="bottom", fontsize=SMALL)


def _labels(panel: Axes, names: Sequence[str], ranks: np.ndarray, bars: float) -> None:
    """The better half at the right, the worse half at the left, the extreme ranks uppermost."""
    right = (len(names) + 1) // 2
    far = len(names)
    for place, (name, rank) in enumerate(zip(names, ranks, strict=True)):
        best = place < right
        y = -bars - _LINE * (place if best else far - 1 - place)
        edge = 0.95 if best else far + 0.05
        panel.plot([rank, rank, edge], [0, y, y], color=GREY, linewidth=0.8, clip_on=False)
        text = f"{rank:.2f}  {name}" if best else f"{name}  {rank:.2f}"
        panel.annotate(
            text, (edge, y), (4 if best else -4, 0), textcoords="offset points", va="center",
            ha="left" if best else "right", fontsize=SMALL, annotation_clip=False,
        )  # fmt: skip


def _levels(spans: Sequence[tuple[float, float]]) -> list[int]:
    """For each span, from left to right, the lowest level on which it touches no other."""
    ends: list[float] = []
    found = []
    for low, high in spans:
        free = (level for level, end in enumerate(ends) if low - end > 0.2)
        level = next(free, len(ends))
        ends[level : level + 1] = [high]
        found.append(level)
    return found
