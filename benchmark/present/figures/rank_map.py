"""Ranks of methods under settings, as a map."""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pfl_benchmark.render.picture import Picture, styled
from pfl_benchmark.render.style import PAGE, SMALL
from pfl_benchmark.studies.results import Results
from pfl_benchmark.studies.statistics import ranked

_ROW, _AROUND = 0.19, 1.9  # inches: a setting, and what stands around all of them
_WIDE = 0.46  # of the palest to the darkest colour, from which on digits are white


def rank_map(results: Results) -> Picture | None:
    """Settings × methods: the rank of each method among those that have a record there, best ones dark."""
    means = results.means()
    rows = [row for row in results.rows if row in means.index and means.loc[row].notna().any()]
    columns = [column for column in results.columns if column in means and means[column].notna().any()]
    if not rows or not columns:
        return None
    found = means.loc[rows, columns]
    ranks = ranked(found).to_numpy().T
    order = np.argsort(np.nanmean(ranks / np.nanmax(ranks, axis=1, keepdims=True), axis=0), kind="stable")
    ranks = ranks[:, order]
    with styled():
        figure = Figure(figsize=(PAGE, _ROW * len(columns) + _AROUND), layout="constrained")
        FigureCanvasAgg(figure)
        axis = figure.subplots()
        axis.imshow(ranks, cmap="Blues_r", aspect="auto", vmin=1, vmax=len(rows))
        for (y, x), rank in np.ndenumerate(ranks):
            if np.isfinite(rank):
                dark = (rank - 1) / max(len(rows) - 1, 1) < _WIDE
                color = "white" if dark else "black"
                axis.text(x, y, f"{rank:g}", ha="center", va="center", fontsize=SMALL, color=color)
        axis.set_xticks(range(len(rows)), [rows[at] for at in order], rotation=90)
        axis.set_yticks(range(len(columns)), columns)
        axis.set_xlabel("method")
        axis.grid(False)
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0)
    caption = (
        "Rank by mean test accuracy among the methods that have a record of the setting, 1 is best; ties "
        "share their mean. Methods in the order of their mean rank."
    )
    return Picture(
        f"{results.study.name}-ranks",
        f"{results.study.title}: ranks",
        results.profile.warned(caption),
        figure,
    )
