"""How accuracy is distributed over clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from pfl_benchmark.present.figures.style import panels
from pfl_benchmark.records.record import Record
from pfl_benchmark.render.picture import Picture, styled
from pfl_benchmark.render.quantiles import MANY, QUANTILES
from pfl_benchmark.render.style import GREY, SMALL, looks
from pfl_benchmark.studies.results import Results


def client_accuracies(results: Results) -> Picture | None:
    """Clients' test accuracies, by method: dots or, of many, a bar, and a box between the quartiles."""
    columns = results.begun
    if not columns:
        return None
    rows = [row for row in results.rows if any(results.at(row, column) for column in columns)]
    with styled():
        first = 0.12 + 0.058 * max(map(len, rows))
        figure, axes = panels(columns, 0.19 * len(rows) + 0.15, left=0.12, first=first)
        for index, (panel, column) in enumerate(zip(axes, columns, strict=True)):
            _panel(panel, results, column, rows)
            if index % (2 if len(columns) == 4 else 3):
                panel.set_yticklabels([])
    caption = (
        "Test accuracy of every client after the last round, all seeds together. Boxes: from the lower to "
        "the upper quartile, with the median; diamonds: mean of the worst 10 % of clients."
    )
    if any(map(_is_large, results.records.values())):
        caption += f" With more than {MANY} clients, in place of dots: light bars from 5 to 95 % of them."
    return Picture("client-accuracies", "Accuracy by client", results.profile.warned(caption), figure)


def _is_large(records: Mapping[int, Record]) -> bool:
    """Whether the runs of a place, by seed, have too many clients to show each."""
    return any(len(record.accuracies) > MANY for record in records.values())


def _panel(panel: Axes, results: Results, column: str, rows: list[str]) -> None:
    jitter = np.random.default_rng(0)
    lost, styles = results.lost(column), looks(results.rows)
    for place, row in enumerate(rows):
        records = results.at(row, column)
        if row in lost:
            across = panel.get_yaxis_transform()
            panel.text(0.5, place, "diverged", transform=across, va="center", ha="center", fontsize=SMALL)
            continue
        if not records:
            continue
        values = 100 * np.concatenate([record.accuracies for record in records])
        worst = 100 * float(np.mean(results.values(row, column, "accuracy_worst10")))
        color = styles[row].color
        _, least, low, median, high, most, _ = np.percentile(values, [*QUANTILES.values()])
        if _is_large(results.records[row, column]):
            panel.barh(place, most - least, left=least, height=0.62, color=color, alpha=0.25, linewidth=0)
        else:
            height = place + jitter.uniform(-0.28, 0.28, len(values))
            # Dots go into an SVG as a picture: thousands of shapes would make it megabytes.
            alpha = max(0.12, min(0.45, 20 / len(values)))
            look: dict[str, Any] = {"alpha": alpha, "markersize": 2.4, "markeredgewidth": 0}
            panel.plot(values, height, "o", color=color, rasterized=True, **look)
        panel.barh(place, high - low, left=low, height=0.62, facecolor="none", edgecolor=color, linewidth=0.9)
        panel.plot([median, median], [place - 0.31, place + 0.31], color=color, linewidth=2)
        panel.plot(
            worst, place, "D", color="white", markeredgecolor=color, markersize=3.6, markeredgewidth=1.1
        )
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_yticks(range(len(rows)), rows)
    panel.tick_params(axis="y", length=0)
    panel.grid(axis="y", visible=False)
    panel.spines["left"].set_visible(False)
    panel.margins(x=0.03)
    panel.set_xlim(right=min(panel.get_xlim()[1], 102))
    panel.set_xlabel("test accuracy, %", labelpad=2)
    panel.axvline(100, color=GREY, linewidth=0.5, zorder=0)
