"""Accuracy along the points of a sweep."""

from __future__ import annotations

import numpy as np

from pfl_benchmark.present.figures.style import End, color_of, label_ends, name_lost, panels, tidy
from pfl_benchmark.render.picture import Picture, styled
from pfl_benchmark.studies.results import Results


def sweep(results: Results) -> Picture | None:
    """Accuracy of every method at every point; bars from the smallest to the largest seed."""
    study = results.study
    if not results.records:
        return None
    with styled():
        figure, (panel,) = panels([study.title], width=4.2, height=2.9, right=1.0)
        ends = []
        for index, row in enumerate(results.rows):
            points = [
                (column.x, 100 * np.array(values))
                for column in results.grid.columns
                if (values := results.values(row, column.title)) and not results.diverged(row, column.title)
            ]
            if not points:
                continue
            x = [x for x, _ in points]
            mean = np.array([values.mean() for _, values in points])
            bars = [[values.mean() - values.min(), values.max() - values.mean()] for _, values in points]
            color = color_of(row, index)
            strong = row == study.highlight
            width, order = (2.0, 4) if strong else (1.2, 3)
            panel.errorbar(
                x, mean, np.transpose(bars), marker="o", markersize=3.5, color=color, linewidth=width,
                elinewidth=0.8, zorder=order,
            )  # fmt: skip
            ends.append(End(x[-1], float(mean[-1]), row, color, strong))
        panel.margins(x=0.04, y=0.06)
        panel.set_xticks([column.x for column in results.grid.columns])
        tidy(panel, study.axis, "test accuracy, %")
        label_ends(panel, ends)
        name_lost(panel, _lost(results))
    caption = (
        "Test accuracy after the last round, weighted by test samples. Mean over seeds, bars from the "
        "smallest to the largest."
    )
    return Picture(study.name, study.title, results.profile.warned(caption), figure)


def _lost(results: Results) -> list[str]:
    """``Ditto (2, 5)``: the methods that lack points, since training diverged there."""
    at: dict[str, list[str]] = {}
    for column in results.grid.columns:
        for row in results.lost(column.title):
            at.setdefault(row, []).append(f"{column.x:g}")
    return [f"{row} ({', '.join(points)})" for row, points in at.items()]
