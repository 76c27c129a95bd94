"""PPFE with one choice changed at a time, in the order of accuracy: a specification curve."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pfl_benchmark.records.store import Record
from pfl_benchmark.render.picture import Picture, styled
from pfl_benchmark.render.style import GREY, LOOKS, PAGE, SMALL
from pfl_benchmark.studies.results import Place, Results

_ROW, _AROUND = 0.135, 0.85  # inches: a variant, and what stands around all of them
_DEFAULT, _OTHER = LOOKS[3].color, LOOKS[1].color


def specification_curve(results: Results) -> Picture | None:
    """A panel for each setting; variants of PPFE as lines, best mean first, and the best other method."""
    rows = [row.title for row in results.grid.variants if row.algo == "ppfe"]
    others = [row.title for row in results.grid.variants if row.algo != "ppfe"]
    default = rows[0] if rows else ""
    columns = [column for column in results.columns if results.at(default, column)]
    rows = [row for row in rows if any(results.at(row, column) for column in columns)]
    if not columns:
        return None
    results = _same_seeds(results, rows, columns)
    gains = {row: _mean_gain(results, row, default, columns) for row in rows}
    rows.sort(key=gains.__getitem__)
    with styled():
        figure = Figure(figsize=(PAGE, _ROW * len(rows) + _AROUND), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
        for panel, column in zip(axes, columns, strict=True):
            _panel(panel, results, column, rows, others, default)
        axes[0].set_yticks(range(len(rows)), [f"{row} (default)" if row == default else row for row in rows])
        axes[0].tick_params(axis="y", labelsize=SMALL)
        axes[0].set_ylim(-0.6, len(rows) - 0.4)
    caption = (
        "Test accuracy after the last round of PPFE with one choice changed at a time, in the order of the "
        "mean difference from the default (solid line). Dashed: the best other method. Seeds "
        f"{', '.join(map(str, results.seeds))}."
    )
    name = f"{results.study.name}-specification-curve"
    return Picture(name, results.study.title, results.profile.warned(caption), figure)


def _same_seeds(results: Results, rows: list[str], columns: list[str]) -> Results:
    """Of each setting only the seeds that all variants of PPFE have; other methods may lack some of them."""
    found: dict[Place, Mapping[int, Record]] = {}
    for column in columns:
        own = results.restricted([(row, column) for row in rows if results.at(row, column)])
        seeds = {seed for records in own.records.values() for seed in records}
        for place, records in results.records.items():
            if place[1] == column and (kept := {s: record for s, record in records.items() if s in seeds}):
                found[place] = kept
    return dataclasses.replace(results, records=found)


def _mean_gain(results: Results, row: str, default: str, columns: list[str]) -> float:
    """By how much a variant is above the default, over the settings that it has records of."""
    gains = [
        found - basis
        for column in columns
        if (found := results.mean(row, column)) is not None
        and (basis := results.mean(default, column)) is not None
    ]
    return sum(gains) / len(gains) if gains else -math.inf


def _panel(
    panel: Axes, results: Results, column: str, rows: list[str], others: list[str], default: str
) -> None:
    best = max(
        ((mean, row) for row in others if (mean := results.mean(row, column)) is not None), default=None
    )
    for y, row in enumerate(rows):
        mean = results.mean(row, column)
        if mean is None or results.diverged(row, column):
            text = "diverged" if row in results.lost(column) else "no record"
            across = panel.get_yaxis_transform()
            panel.text(0.5, y, text, fontsize=SMALL, color=GREY, transform=across, va="center", ha="center")
            continue
        color = _DEFAULT if row == default else GREY
        panel.plot(100 * mean, y, marker="o", markersize=3.5, linestyle="", color=color)
    if (mean := results.mean(default, column)) is not None:
        panel.axvline(100 * mean, color=_DEFAULT, linewidth=0.8)
    if best:
        panel.axvline(100 * best[0], color=_OTHER, linewidth=1, linestyle="--")
    words = f"\n{best[1]}: {100 * best[0]:.1f}" if best else ""
    panel.set_title(f"{column}{words}", loc="left")
    panel.set_xlabel("test accuracy, %")
