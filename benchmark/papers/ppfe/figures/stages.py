"""PPFE stage by stage: each stage's model alone, and the ensemble of all so far."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from pfl_benchmark.papers.ppfe.recorded import stage_labels, stages_of
from pfl_benchmark.present.figures.style import labels_of, legend, name_lost, panels, sample, tidy
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.picture import Picture, styled
from pfl_benchmark.render.style import LOOKS, Look
from pfl_benchmark.studies.results import Results

_LINES = (
    ("stage_test_accuracy", "stage alone", Look(LOOKS[3].color, "--")),
    ("ensemble_test_accuracy", "ensemble so far", LOOKS[1]),
)


def ppfe_stages(results: Results) -> Picture | None:
    """Test accuracy by stage; bands from the smallest to the largest seed."""
    found = {
        (row, column): records
        for column in results.columns
        for row in results.rows
        if (records := [record for record in results.at(row, column) if _told(record)])
    }
    if not found:
        return None
    titles = {row for row, _ in found}
    names = [column if len(titles) == 1 else f"{row}, {column}" for row, column in found]
    with styled():
        handles = [sample(text, look) for _, text, look in _LINES]
        figure, axes = panels(names, 1.5, labels_of(handles))
        for panel, (place, records) in zip(axes, found.items(), strict=True):
            if results.diverged(*place):
                name_lost(panel, [place[0]])
            else:
                _panel(panel, records)
        legend(figure, handles)
    caption = (
        "PPFE after each stage: test accuracy of that stage's model alone, and of the weighted ensemble of "
        "all stages so far, whose last point is the method's result. Mean over seeds, bands from the "
        "smallest to the largest. Below the stages: the layers that are personal in them."
    )
    return Picture("ppfe-stages", "PPFE by stage", results.profile.warned(caption), figure)


def _told(record: Record) -> bool:
    stages = stages_of(record)
    return bool(stages) and all(field in stage for stage in stages for field, *_ in _LINES)


def _panel(panel: Axes, records: list[Record]) -> None:
    stages = [stages_of(record) for record in records]
    numbers = [stage["stage"] for stage in stages[0]]
    for field, _, look in _LINES:
        values = 100 * np.array([[stage[field] for stage in run] for run in stages])  # [seeds, stages]
        mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
        panel.fill_between(numbers, low, high, color=look.color, alpha=0.2, linewidth=0)
        panel.plot(numbers, mean, linestyle=look.dashes, color=look.color, marker="o", markersize=3)
    panel.margins(x=0.06, y=0.1)
    panel.set_xticks(numbers, stage_labels(stages[0]))
    tidy(panel, "stage", "test accuracy, %")
