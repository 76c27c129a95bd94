"""Accuracy against bytes: a marker for each row of a study."""

from __future__ import annotations

from statistics import fmean

from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.present.figures.style import labels_of, legend, name_lost, panels, tidy
from pfl_benchmark.render.picture import Picture, styled
from pfl_benchmark.render.style import GREY, looks
from pfl_benchmark.studies.grid import Variant
from pfl_benchmark.studies.results import Results

_MARKERS = "osD^vP*X<>"
_MB = 1e6


def trade_off(results: Results) -> Picture | None:
    """Mean accuracy against all bytes of a run, a panel for each column.

    The marker tells the method. The colour tells the group of the row (`Variant.group`), where it has one.
    """
    if not results.records:
        return None
    rows = results.grid.variants
    methods = [*dict.fromkeys(_method(row) for row in rows)]
    groups = [*dict.fromkeys(row.group for row in rows)]
    markers = {method: _MARKERS[place % len(_MARKERS)] for place, method in enumerate(methods)}
    colors = {group: look.color for group, look in looks(groups).items()}
    with styled():
        shapes = [_handle(method, markers[method], GREY) for method in methods]
        shades = [_handle(group, "o", colors[group]) for group in groups if group]
        legends = [handles for handles in (shapes, shades) if handles]
        figure, axes = panels(results.begun, 2.1, labels_of(*legends))
        for panel, column in zip(axes, results.begun, strict=True):
            for row in rows:
                found = results.at(row.title, column)
                if not found or results.diverged(row.title, column):
                    continue
                x, y = fmean(each.bytes_sent for each in found), fmean(results.values(row.title, column))
                panel.plot(
                    x / _MB, 100 * y, marker=markers[_method(row)], color=colors[row.group], markersize=5,
                    linestyle="", markeredgecolor="white", markeredgewidth=0.5,
                )  # fmt: skip
            panel.set_xscale("log")
            panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.xaxis.set_minor_locator(NullLocator())
            panel.margins(x=0.06, y=0.08)
            tidy(panel, "bytes sent in all directions, MB", "test accuracy, %")
            name_lost(panel, results.lost(column))
        legend(figure, *legends)
    caption = (
        "Test accuracy after the last round, weighted by test samples, against all bytes that a run sends. "
        "Mean over seeds."
    )
    return Picture("trade-off", "Accuracy against bytes", results.profile.warned(caption), figure)


def _method(row: Variant) -> str:
    """The title of a row's method, with its ablation."""
    title = ALGORITHMS[row.algo].title
    return f"{title}, {row.ablation}" if row.ablation else title


def _handle(label: str, marker: str, color: str) -> Line2D:
    return Line2D([], [], color=color, marker=marker, linestyle="", markersize=5, label=label)
