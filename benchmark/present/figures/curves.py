"""Accuracy on the way: against rounds, bytes sent, and samples trained on; also of other budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes

from pfl_benchmark.present.compare import Group
from pfl_benchmark.present.figures.style import (
    LINE_HEIGHT,
    End,
    color_of,
    label_ends,
    name_lost,
    panels,
    tidy,
)
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.picture import Picture, styled
from pfl_benchmark.studies.grid import Column
from pfl_benchmark.studies.results import Results

_HOW = (
    "Test accuracy, weighted by test samples, at every evaluation, mean over seeds. Dotted: the step from "
    "the model in training to the one that counts (fine-tuned, or an ensemble); the dot is the figure "
    "in the table."
)

_COMPARED = (
    "Test accuracy, weighted by test samples, at every evaluation, mean over seeds. The dot is the figure "
    "after the last round. Dotted: the step from the model in training to the one that counts (fine-tuned, "
    "or an ensemble)."
)
_ENDS = (
    "Lines: runs of equal rounds, which end at the dot. Squares: where runs of equal bytes end. Triangles: "
    "those of equal samples; runs that are the same have one mark. Over the seeds that all runs of the "
    "setting have."
)
_MARKERS = {"bytes": "s", "samples": "^"}  # of where runs under other budgets end


@dataclass(frozen=True)
class Axis:
    """What accuracy is drawn against.

    Attributes:
        field: of `curve`.
        units: factors and how the label goes on, the largest first.
        text: ends the caption.
    """

    title: str
    field: str
    label: str
    units: tuple[tuple[float, str], ...]
    text: str


_ROUNDS = Axis("Learning curves", "round", "communication round", ((1, ""),), "")
_BYTES = Axis(
    "Accuracy against bytes",
    "bytes",
    "bytes sent in all directions, ",
    ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")),
    "Bytes up, down and broadcast, added up from the first round on.",
)
_SAMPLES = Axis(
    "Accuracy against compute",
    "samples",
    "training samples processed",
    ((1e6, ", millions"), (1e3, ", thousands"), (1, "")),
    "Samples of local training, fine-tuning of the final model included.",
)


def learning_curves(results: Results) -> Picture | None:
    """Draw accuracy against rounds, a panel for each setting."""
    return _draw(results, "learning-curves", _ROUNDS)


# Those of budgets also show where runs under each budget end.
CURVES: dict[str, Callable[[Results], Picture | None]] = {
    "learning-curves": learning_curves,
    "accuracy-bytes": lambda results: _draw(results, "accuracy-bytes", _BYTES),
    "accuracy-samples": lambda results: _draw(results, "accuracy-samples", _SAMPLES),
    "budgets-bytes": lambda results: _draw(results, "budgets-bytes", replace(_BYTES, text=_ENDS), True),
    "budgets-samples": lambda results: _draw(results, "budgets-samples", replace(_SAMPLES, text=_ENDS), True),
}


def curve(records: Sequence[Record]) -> dict[str, np.ndarray]:
    """Means over the records (seeds) at the rounds in which all of them were evaluated.

    Returns:
        ``round``, ``bytes`` and ``samples`` (both since the first round) and ``accuracy`` (0..1).
    """
    points: dict[int, list[tuple[float, float, float, float]]] = {}
    for record in records:
        sent = trained = 0
        for line in record.rounds:
            sent += line["bytes_up"] + line["bytes_down"] + line["bytes_broadcast"]
            trained += line["samples"] + line["adaptation_samples"]
            if "accuracy" in line:
                point = (line["round"], sent, trained, line["accuracy"])
                points.setdefault(line["round"], []).append(point)
    means = [np.mean(found, axis=0) for _, found in sorted(points.items()) if len(found) == len(records)]
    return dict(zip(("round", "bytes", "samples", "accuracy"), np.array(means).T, strict=True))


def _draw(results: Results, name: str, axis: Axis, budgets: bool = False) -> Picture | None:
    """A panel for each setting; with `budgets`, a group of columns shares that of equal rounds."""
    shown = [column for column in results.grid.columns if column.title in results.begun]
    if budgets:
        shown = [column for column in shown if column.budget == "rounds"]
    if not shown:
        return None
    height = max(2.3, LINE_HEIGHT * len(results.rows))  # room for a label of each row
    with styled():
        titles = [column.group if budgets else column.title for column in shown]
        figure, axes = panels(titles, width=4.2 if budgets else 2.75, height=height, right=1.0)
        for panel, column in zip(axes, shown, strict=True):
            group = [other for other in results.grid.columns if budgets and other.group == column.group]
            theirs = {other.title for other in group}
            same = results.restricted([p for p in results.records if p[1] in theirs]) if budgets else results
            _panel(panel, same, column, axis, [other for other in group if other != column])
    return Picture(name, axis.title, results.profile.warned(f"{_HOW} {axis.text}".strip()), figure)


def _panel(panel: Axes, results: Results, column: Column, axis: Axis, others: Sequence[Column]) -> None:
    """The curves of a column, and of others of its group the ends."""
    field = axis.field
    lost = results.lost(column.title)
    rows = [row for row in results.rows if row not in lost]
    curves = {row: curve(found) for row in rows if (found := results.at(row, column.title))}
    marks = [
        (row, other, curve(found))
        for row in curves
        for other in others
        if (found := results.at(row, other.title))
    ]
    ending = [*curves.values(), *(line for *_, line in marks)]
    most = max((float(line[field][-1]) for line in ending), default=0.0)
    factor, unit = next((each for each in axis.units if most >= each[0]), axis.units[-1])
    for row, other, line in marks:
        x, y = line[field][-1] / factor, 100 * line["accuracy"][-1]
        if results.at(row, other.title) != results.at(row, column.title):
            color, marker = color_of(row, results.rows.index(row)), _MARKERS[other.budget]
            panel.plot([x], [y], marker, color=color, markersize=4, zorder=5)
    ends = []
    for row, line in curves.items():
        color, x, y = color_of(row, results.rows.index(row)), line[field] / factor, 100 * line["accuracy"]
        strong = row == results.study.highlight
        draw(panel, results.at(row, column.title), x, y, color, strong)
        ends.append(End(float(x[-1]), float(y[-1]), row, color, strong))
    panel.margins(x=0.03, y=0.06)
    panel.set_xlim(left=0 if field == "round" else None)
    tidy(panel, axis.label + unit, "test accuracy, %")
    label_ends(panel, ends)
    name_lost(panel, lost)


def draw(
    panel: Axes, records: Sequence[Record], x: np.ndarray, y: np.ndarray, color: str, strong: bool = False
) -> None:
    """A learning curve and a dot at its end; dotted where the last evaluation is of another kind of model.

    Args:
        records: the runs, one a seed, that the curve is of.
        strong: a thick line, above the others.
    """
    width, order = (2.0, 4.0) if strong else (1.2, 3.0)
    # Up to the last evaluation a method that ends with adaptation may coincide with one that does not, which
    # then lies on top.
    changes = _changes(records[0])
    cut = len(x) - 1 if changes else len(x)
    order -= 0.5 * changes
    panel.plot(x[:cut], y[:cut], color=color, linewidth=width, zorder=order)
    panel.plot(x[cut - 1 :], y[cut - 1 :], color=color, linewidth=width, linestyle=":", zorder=order)
    panel.plot(x[-1:], y[-1:], "o", color=color, markersize=3.5, zorder=order + 1)


def compared(groups: Sequence[Group]) -> Picture:
    """Learning curves of runs of any study: a panel for each group, a line for each candidate."""
    most = max(len(group.candidates) for group in groups)
    longest = max(len(candidate.title) for group in groups for candidate in group.candidates)
    with styled():
        height = max(2.3, LINE_HEIGHT * most)
        titles = [group.setting for group in groups]
        figure, axes = panels(titles, width=3.6, height=height, right=0.35 + 0.065 * longest)
        for panel, group in zip(axes, groups, strict=True):
            ends = []
            for position, candidate in enumerate(group.candidates):
                if candidate.diverged:
                    continue
                records = list(candidate.records.values())
                line, color = curve(records), color_of(candidate.title, position)
                x, y = line["round"], 100 * line["accuracy"]
                draw(panel, records, x, y, color)
                ends.append(End(float(x[-1]), float(y[-1]), candidate.title, color))
            panel.margins(x=0.03, y=0.06)
            tidy(panel, "communication round", "test accuracy, %")
            label_ends(panel, ends)
            name_lost(panel, [candidate.title for candidate in group.candidates if candidate.diverged])
    return Picture("compared", "Learning curves", _COMPARED, figure)


def _changes(first: Record) -> bool:
    """Whether the final model is another kind of model than those evaluated on the way."""
    adapted = any(line["adaptation_samples"] for line in first.rounds) and not first.config.eval_adapted
    return adapted or bool(first.diagnostics.get("stages"))
