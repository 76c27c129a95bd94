"""Accuracy along the points of a sweep."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from matplotlib.axes import Axes

from pfl_benchmark.present.figures.style import labels_of, legend, name_lost, panels, sample, tidy
from pfl_benchmark.render.picture import Picture, styled
from pfl_benchmark.render.style import STRONG, looks
from pfl_benchmark.studies.grid import Column, Grid, Variant
from pfl_benchmark.studies.results import Results

_WIDE = 10  # the last point is so many times the first: points are drawn at equal factors


def sweep(results: Results) -> Picture | None:
    """Accuracy of every method at every point, a panel for each group of columns (bars: `_panel`)."""
    study, results = results.study, _turned(results)
    if not results.records:
        return None
    groups: dict[str, list[Column]] = {}
    for column in results.grid.columns:
        groups.setdefault(column.group, []).append(column)
    with styled():
        titles = [group or study.title for group in groups]
        styles = looks(results.rows)
        handles = [sample(row, styles[row], row == study.highlight) for row in results.rows]
        figure, axes = panels(titles, 1.9, labels_of(handles))
        for panel, columns in zip(axes, groups.values(), strict=True):
            _panel(panel, results, columns)
        legend(figure, handles)
    caption = (
        "Test accuracy after the last round, weighted by test samples. Mean over seeds, bars from the "
        "smallest to the largest."
    )
    return Picture(study.name, study.title, results.profile.warned(caption), figure)


def _turned(results: Results) -> Results:
    """Points as columns, where they are rows (`Variant.x`): a line for each group of these."""
    points = [variant for variant in results.grid.variants if variant.x is not None]
    if not points:
        return results
    places, columns = {}, {}
    for column in results.grid.columns:
        for point in points:
            title = f"{column.title}, {point.x:g}"
            columns[title] = Column(title, column.setting, x=point.x or 0.0, group=column.title)
            places[point.title, column.title] = (point.group, title)
    rows = tuple(Variant(group, "") for group in dict.fromkeys(point.group for point in points))
    grid = Grid(rows, tuple(columns.values()))
    return dataclasses.replace(
        results,
        study=dataclasses.replace(results.study, grids={results.profile.name: grid}),
        records={places[at]: found for at, found in results.records.items() if at in places},
        failed={places[at]: why for at, why in results.failed.items() if at in places},
    )


def _panel(panel: Axes, results: Results, columns: list[Column]) -> None:
    """The lines of some columns; bars from the smallest to the largest seed."""
    study, styles = results.study, looks(results.rows)
    ticks, labels = [column.x for column in columns], None
    if columns[0].group:
        labels = [f"{x:g}" for x in ticks]
        if min(ticks) > 0 and max(ticks) >= _WIDE * min(ticks):
            ticks = [math.log10(x) for x in ticks]
    for row in results.rows:
        points = [
            (tick, 100 * np.array(values))
            for tick, column in zip(ticks, columns, strict=True)
            if (values := results.values(row, column.title)) and not results.diverged(row, column.title)
        ]
        if not points:
            continue
        x = [x for x, _ in points]
        mean = np.array([values.mean() for _, values in points])
        bars = [[values.mean() - values.min(), values.max() - values.mean()] for _, values in points]
        look, strong = styles[row], row == study.highlight
        width, order = (STRONG, 4) if strong else (1.1, 3)
        panel.errorbar(
            x, mean, np.transpose(bars), marker="o", markersize=3, color=look.color, linewidth=width,
            linestyle=look.dashes, elinewidth=0.8, zorder=order,
        )  # fmt: skip
    panel.margins(x=0.04, y=0.06)
    panel.set_xticks(ticks, labels)
    tidy(panel, study.axis, "test accuracy, %")
    name_lost(panel, _lost(results, columns))


def _lost(results: Results, columns: list[Column]) -> list[str]:
    """``Ditto (2, 5)``: the methods that lack points, since training diverged there."""
    at: dict[str, list[str]] = {}
    for column in columns:
        for row in results.lost(column.title):
            at.setdefault(row, []).append(f"{column.x:g}")
    return [f"{row} ({', '.join(points)})" for row, points in at.items()]
