"""One run of a staged method, stage by stage: accuracy, ensemble weights and sample weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pfl_benchmark.papers.ppfe.recorded import stage_labels
from pfl_benchmark.present.figures.style import tidy
from pfl_benchmark.render.picture import styled
from pfl_benchmark.render.quantiles import MANY, QUANTILES
from pfl_benchmark.render.style import GREY, LOOKS, PAGE

_ALONE, _ENSEMBLE, _CLIENTS = (LOOKS[place].color for place in (3, 1, 4))
_LINES = (
    ("ensemble_train_accuracy", "ensemble so far, train", _ENSEMBLE, "--", "white"),
    ("ensemble_test_accuracy", "ensemble so far, test", _ENSEMBLE, "-", _ENSEMBLE),
    ("stage_train_accuracy", "stage alone, train", _ALONE, "--", "white"),
    ("stage_test_accuracy", "stage alone, test", _ALONE, "-", _ALONE),
)
_WIDTH = 0.5  # of a box, in stages


def stage_figure(diagnostics: list[dict[str, Any]], title: str) -> Figure:
    """Three panels: accuracy by stage, β by stage, effective sample size by stage.

    Args:
        diagnostics: the ``stages`` of a record's diagnostics.json (`algorithms.ppfe.diagnostics.describe`).
        title: what the run is.
    """
    with styled():
        figure = Figure(figsize=(PAGE, 2.8), layout="constrained")
        figure.suptitle(title, x=0.008, ha="left", fontsize=8.5, fontweight="bold")
        many = len(diagnostics[0]["clients"]["beta"]) > MANY
        words = f"{'light: 5 to 95 % of' if many else 'dots:'} clients   box: quartiles   line: median"
        figure.text(0.995, 0.965, words, ha="right", fontsize=6.5, color=GREY)
        accuracy, betas, effective = figure.subplots(1, 3, width_ratios=[1.6, 1, 1])
        _accuracy(accuracy, diagnostics)
        _clients(betas, diagnostics, "beta")
        _clients(effective, diagnostics, "effective_samples")
        for axes, text, label in (
            (accuracy, "Accuracy", "%"),
            (betas, "Weight β in the ensemble", ""),
            (effective, "Effective samples", "(Σω)²/Σω²"),
        ):
            axes.set_title(text, loc="left", pad=7)
            tidy(axes, "stage and its personal layers", label)
            _stages(axes, diagnostics)
    return figure


def _stages(axes: Axes, diagnostics: Sequence[Mapping[str, Any]]) -> None:
    """Stage numbers and, below them, the personal layers."""
    numbers = [stage["stage"] for stage in diagnostics]
    axes.set_xticks(numbers, stage_labels(diagnostics))
    axes.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
    axes.grid(axis="x", visible=False)


def _accuracy(axes: Axes, diagnostics: Sequence[Mapping[str, Any]]) -> None:
    numbers = [stage["stage"] for stage in diagnostics]
    for field, label, color, dashes, face in _LINES:
        values = [100 * stage[field] for stage in diagnostics]
        axes.plot(numbers, values, dashes, color=color, marker="o", ms=4.5, mfc=face, label=label)
    axes.margins(y=0.08)
    axes.legend(frameon=False, fontsize=6.5, loc="lower right")


def _clients(axes: Axes, diagnostics: Sequence[Mapping[str, Any]], field: str) -> None:
    """Clients as dots or, if they are many, as a bar; a box between the quartiles with the median."""
    jitter = np.random.default_rng(0)
    for stage in diagnostics:
        number, values = stage["stage"], np.asarray(stage["clients"][field])
        _, least, low, median, high, most, _ = np.percentile(values, [*QUANTILES.values()])
        if len(values) > MANY:
            axes.bar(number, most - least, _WIDTH, bottom=least, color=_CLIENTS, alpha=0.2, linewidth=0)
        else:
            aside = number + jitter.uniform(-0.4 * _WIDTH, 0.4 * _WIDTH, len(values))
            axes.plot(aside, values, "o", color=_CLIENTS, alpha=0.35, markersize=3, markeredgewidth=0)
        axes.bar(number, high - low, _WIDTH, bottom=low, color=_CLIENTS, alpha=0.2, linewidth=0)
        axes.hlines(median, number - _WIDTH / 2, number + _WIDTH / 2, color=_CLIENTS, linewidth=2)
    # From zero, with room for whole dots at both ends.
    top = max(max(stage["clients"][field]) for stage in diagnostics) or 1.0
    axes.set_ylim(-0.03 * top, 1.08 * top)
