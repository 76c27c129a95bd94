"""The two pictures of the synthetic study: test error by number of clients and by personalization ratio."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from pfl_benchmark.papers.ppfe.synthetic.model import NOISE_VARIANCE, UNIFORM
from pfl_benchmark.papers.ppfe.synthetic.study import METHODS
from pfl_benchmark.render.picture import Picture, styled
from pfl_benchmark.render.style import COLUMN, GREY, SMALL, looks

_LOOKS: dict[str, dict[str, Any]] = {  # Local Only with own λ, next to Local Only, is in the table alone
    "local": {"marker": "s"},
    "fedavg": {"marker": "^"},
    "fedavg-ft": {"marker": "v", "linewidth": 4.5, "markersize": 7},  # wide: PPFE is nearly the same
    "ppfe-one-lambda": {"marker": "D", "linestyle": "--", "markerfacecolor": "white"},
    "ppfe": {"marker": "o", "linewidth": 2},  # last, and so on top
}
_APART = 1.16  # where U(0,1) stands on the axis of r_p
_ASIDE = 0.014  # between the methods' points there


def clients_picture(errors: pd.DataFrame) -> Picture:
    """Study A of `run_studies`' table: test error against the number of clients K."""
    rows = errors[errors["study"] == "A"]
    with styled():
        figure, axes = _axes("number of clients K")
        for method in _LOOKS:
            own = rows[rows["method"] == method]
            _line(axes, method, own["clients"].astype(float), own["mse"])
        axes.set_xticks(sorted(set(rows["clients"])))
        _finish(figure, axes)
    text = f"Ridge regressions on synthetic clients, r_p = {rows['r_p'].iloc[0]}, {_rest(rows)}"
    return Picture("clients", "Test error by number of clients", text, figure)


def ratio_picture(errors: pd.DataFrame) -> Picture:
    """Study B: test error against the personalization ratio r_p; U(0,1) stands apart on the right."""
    rows = errors[errors["study"] == "B"]
    with styled():
        figure, axes = _axes("personalization ratio $r_p$")
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(FixedLocator([0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
        for place, method in enumerate(_LOOKS):
            own = rows[rows["method"] == method]
            drawn = own["r_p"] == UNIFORM
            _line(axes, method, own["r_p"][~drawn].astype(float), own["mse"][~drawn])
            if drawn.any():
                apart = pd.Series(_APART + _ASIDE * (place - (len(_LOOKS) - 1) / 2), index=own.index[drawn])
                _line(axes, method, apart, own["mse"][drawn], label="")
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1, _APART], ["0", "0.25", "0.5", "0.75", "1", UNIFORM])
        axes.axvline((1 + _APART) / 2, color="#d0d0d0", linewidth=0.7)
        _finish(figure, axes)
    text = (
        f"Ridge regressions on synthetic clients, K = {rows['clients'].iloc[0]}, {_rest(rows)} r_p = 0: all "
        "clients alike; r_p = 1: nothing in common; U(0,1): each client draws its own. Logarithmic scale."
    )
    return Picture("ratio", "Test error by personalization ratio", text, figure)


def _axes(label: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(COLUMN, 2.7), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(label, parse_math=True)
    axes.set_ylabel("test MSE, mean over clients")
    return figure, axes


def _line(axes: Axes, method: str, place: pd.Series, mse: pd.Series, label: str | None = None) -> None:
    """Means over seeds, with bars of a standard deviation where there are several."""
    points = mse.groupby(place).agg(["mean", "std", "count"])
    spread = points["std"] if (points["count"] > 1).all() else None
    title = METHODS[method]
    look = {"linewidth": 1.3, "markersize": 3.5, **_LOOKS[method]}
    axes.errorbar(
        points.index,
        points["mean"],
        spread,
        label=title if label is None else label,
        color=looks([*METHODS.values()])[title].color,
        elinewidth=0.9,
        capsize=2,
        **look,
    )


def _finish(figure: Figure, axes: Axes) -> None:
    axes.axhline(NOISE_VARIANCE, color=GREY, linewidth=0.9, linestyle=":")
    axes.set_ylim(bottom=0.84 * NOISE_VARIANCE)
    axes.annotate(
        f"noise floor {NOISE_VARIANCE:g}",
        (0.5, NOISE_VARIANCE),
        xycoords=("axes fraction", "data"),
        xytext=(0, -2.5),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=SMALL,
        color=GREY,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0},
    )
    lines, titles = axes.get_legend_handles_labels()
    order = sorted(range(len(titles)), key=lambda i: [*METHODS.values()].index(titles[i]))
    figure.legend(
        [lines[i] for i in order],
        [titles[i] for i in order],
        loc="outside upper left",
        ncols=3,
        columnspacing=1.2,
        handlelength=1.6,
        frameon=False,
    )


def _rest(rows: pd.DataFrame) -> str:
    """What both captions say of samples and seeds."""
    seeds = rows["seed"].nunique()
    many = f"mean and standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    return f"{rows['samples'].iloc[0]} training samples each; {many}."
