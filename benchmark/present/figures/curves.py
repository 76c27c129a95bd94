"""Accuracy on the way: against rounds, bytes sent, and samples trained on; also of other budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.present.compare import Candidate, Group
from pfl_benchmark.present.figures.style import labels_of, legend, name_lost, panels, sample, tidy
from pfl_benchmark.present.tables.captions import sampled, sampled_in
from pfl_benchmark.records.measured import FINE_TUNED, measured
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.picture import Picture, styled
from pfl_benchmark.render.style import GREY, STRONG, Look, looks
from pfl_benchmark.resolve.run import titled
from pfl_benchmark.studies.grid import Column
from pfl_benchmark.studies.results import Results

_HOW = (
    "Test accuracy, weighted by test samples, at every evaluation, mean over seeds. Filled dot: the result "
    "after the last round. Hollow dot: the model that the line is of, in that round, where the result is of "
    "another."
)
_ENDS = (
    "Lines: runs of equal rounds, which end at the dot. Squares: where runs of equal bytes end. Triangles: "
    "those of equal samples; runs that are the same have one mark. Over the seeds that all runs of the "
    "setting have."
)
_SHADE = "#efefef"
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
    """Means over the records (seeds) at the rounds in which all of them were evaluated, and at their ends.

    Under a budget runs may end a round apart; then the last point has the mean of their numbers of rounds.

    Returns:
        ``round``, ``bytes`` and ``samples`` (both since the first round) and ``accuracy`` (0..1).
    """
    points: dict[int, list[tuple[float, float, float, float]]] = {}
    ends = []
    for record in records:
        sent = trained = 0
        for line in record.rounds:
            sent += line["bytes_up"] + line["bytes_down"] + line["bytes_broadcast"]
            trained += line["samples"] + line["adaptation_samples"]
            if "accuracy" in line:
                point = (line["round"], sent, trained, line["accuracy"])
                points.setdefault(line["round"], []).append(point)
        ends.append(points[line["round"]].pop())
    means = [np.mean(found, axis=0) for _, found in sorted(points.items()) if len(found) == len(records)]
    means.append(np.mean(ends, axis=0))
    return dict(zip(("round", "bytes", "samples", "accuracy"), np.array(means).T, strict=True))


def _draw(results: Results, name: str, axis: Axis, budgets: bool = False) -> Picture | None:
    """A panel for each setting; with `budgets`, a group of columns shares that of equal rounds."""
    shown = [column for column in results.grid.columns if column.title in results.begun]
    if budgets:
        shown = [column for column in shown if column.budget == "rounds"]
    if not shown:
        return None
    styles = looks(results.rows)
    drawn = [row for row in results.rows if any(results.at(row, column.title) for column in shown)]
    records = {row: [r for column in shown for r in results.at(row, column.title)] for row in drawn}
    handles = [sample(row, styles[row], row == results.study.highlight) for row in drawn]
    remarks = _remarks(records.values(), next((row for row in drawn if _stages(records[row])), ""), axis)
    if budgets:
        remarks += [_mark(f"equal {budget}", marker) for budget, marker in _MARKERS.items()]
    with styled():
        titles = [column.group if budgets else column.title for column in shown]
        figure, axes = panels(titles, 1.7, labels_of(handles, remarks))
        for panel, column in zip(axes, shown, strict=True):
            group = [other for other in results.grid.columns if budgets and other.group == column.group]
            theirs = {other.title for other in group}
            same = results.restricted([p for p in results.records if p[1] in theirs]) if budgets else results
            _panel(panel, same, column, axis, [other for other in group if other != column])
        legend(figure, handles, remarks)
    caption = " ".join(filter(None, (_HOW, sampled_in(results), axis.text)))
    return Picture(name, axis.title, results.profile.warned(caption), figure)


def _panel(panel: Axes, results: Results, column: Column, axis: Axis, others: Sequence[Column]) -> None:
    """The curves of a column, and of others of its group the ends."""
    field, styles = axis.field, looks(results.rows)
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
            panel.plot([x], [y], _MARKERS[other.budget], color=styles[row].color, markersize=4, zorder=5)
    for row, line in curves.items():
        strong = row == results.study.highlight
        draw(
            panel,
            results.at(row, column.title),
            line[field] / factor,
            100 * line["accuracy"],
            styles[row],
            strong,
        )
    panel.margins(x=0.03, y=0.06)
    panel.set_xlim(left=0 if field == "round" else None)
    if field == "round":
        _shade(panel, [results.at(row, column.title) for row in curves])
    tidy(panel, axis.label + unit, "test accuracy, %")
    name_lost(panel, lost)


def draw(
    panel: Axes, records: Sequence[Record], x: np.ndarray, y: np.ndarray, look: Look, strong: bool = False
) -> None:
    """A learning curve up to a dot, its result; dotted where everyone trains in the last round.

    Where the last evaluation is of another kind of model, a hollow dot tells what the model of the others
    reaches there, and a line leads up to the result.

    Args:
        records: the runs, one a seed, that the curve is of.
        strong: a thick line, above the others.
    """
    width, order = (STRONG, 4.0) if strong else (1.1, 3.0)
    ends = [last_model(record) for record in records]
    # Up to the last evaluation a method that ends with fine-tuning may coincide with one that does not, which
    # then lies on top.
    order -= 0.5 * bool(ends[0])
    way = y.copy()
    if ends[0]:
        before = [end.before for end in ends if end and end.before is not None]
        way[-1] = 100 * np.mean(before) if len(before) == len(ends) else way[-2] if len(way) > 1 else way[-1]
        panel.plot([x[-1]] * 2, [way[-1], y[-1]], color=look.color, linewidth=0.6, zorder=order)
        panel.plot(
            x[-1:], way[-1:], "o", color=look.color, markerfacecolor="white", markersize=3.2,
            markeredgewidth=0.8, zorder=order + 1,
        )  # fmt: skip
    cut = len(x) - 1 if everyone_ends(records[0]) and len(x) > 1 else len(x)
    panel.plot(x[:cut], way[:cut], color=look.color, linestyle=look.dashes, linewidth=width, zorder=order)
    if cut < len(x):
        panel.plot(x[cut - 1 :], way[cut - 1 :], ":", color=look.color, linewidth=width, zorder=order)
    panel.plot(x[-1:], y[-1:], "o", color=look.color, markersize=3.2, zorder=order + 1)


@dataclass(frozen=True)
class Last:
    """How the last evaluation of a run differs from those on the way.

    Attributes:
        name: of the kind of model that it is of.
        others: what those on the way are of.
        before: accuracy of such a model in the last round, in 0..1, where it is on record.
    """

    name: str
    others: str
    before: float | None


def last_model(record: Record) -> Last | None:
    """What a run's last evaluation is of, if the others are of another kind of model."""
    kind = ""
    for line in record.rounds:
        if "accuracy" in line:
            kind = measured(line, kind)
    if kind == FINE_TUNED and not record.config.eval_adapted:
        return Last(kind, "global model", record.summary.get("global_accuracy"))
    if stages := _stages([record]):
        return Last("ensemble", "last stage's model", stages[-1].get("stage_test_accuracy"))
    return None


def everyone_ends(record: Record) -> bool:
    """Whether more clients train in the last round than in the one before."""
    counts = [line["participants"] for line in record.rounds[-2:]]
    return len(counts) == 2 and counts[1] > counts[0]


def _stages(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The stages that a method's first record tells of."""
    found = records[0].diagnostics.get("stages") if records else None
    return found if isinstance(found, list) and all(isinstance(stage, dict) for stage in found) else []


def _remarks(rows: Iterable[Sequence[Record]], staged: str, axis: Axis) -> list[Any]:
    """The legend's entries on what the marks of the curves mean, as far as there are such."""
    firsts = [records[0] for records in rows if records]
    ends = [end for record in firsts if (end := last_model(record))]
    found: list[Any] = []
    if ends:
        others = " or ".join(dict.fromkeys(end.others for end in ends))
        found.append(_mark(f"before: {others}", "o", "white"))
        found.append(_mark(f"result: {' or '.join(dict.fromkeys(end.name for end in ends))}", "o"))
    if any(map(everyone_ends, firsts)):
        found.append(Line2D([], [], color=GREY, linestyle=":", label="last round: all clients train"))
    if staged and axis.field == "round":
        found.append(Patch(color=_SHADE, label=f"stages of {staged}"))
    return found


def _mark(label: str, marker: str, face: str = GREY) -> Line2D:
    return Line2D(
        [], [], color=GREY, linestyle="", marker=marker, markerfacecolor=face, markersize=3.5, label=label
    )


def _shade(panel: Axes, rows: Sequence[Sequence[Record]]) -> None:
    """Shade every other stage of the first method that has several, and name them above the panel."""
    records = next((records for records in rows if _stages(records)), None)
    if not records:
        return
    rounds: dict[int, list[int]] = {}
    for line in records[0].rounds:
        rounds.setdefault(line["stage"], []).append(line["round"])
    right = panel.get_xlim()[1]
    for stage, found in rounds.items():
        start, end = found[0] - 1, found[-1]
        if stage % 2 == 0:
            panel.axvspan(start, end, color=_SHADE, linewidth=0, zorder=0)
        wide = (end - start) / right > 0.18
        panel.text(
            (start + end) / 2, 1.01, f"stage {stage}" if wide else str(stage), ha="center", va="bottom",
            transform=panel.get_xaxis_transform(), fontsize=6, color=GREY,
        )  # fmt: skip


def _config(candidate: Candidate) -> RunConfig:
    return next(iter(candidate.records.values())).config


def compared(groups: Sequence[Group]) -> Picture:
    """Learning curves of runs of any study: a panel for each group, a line for each candidate."""
    titles = {c.title: titled(c.title, _config(c).algo) for group in groups for c in group.candidates}
    names = list(dict.fromkeys(titles.values()))
    styles = looks(names)
    handles = [sample(name, styles[name]) for name in names]
    firsts = [[*candidate.records.values()] for group in groups for candidate in group.candidates]
    staged = next(
        (titles[c.title] for g in groups for c in g.candidates if _stages([*c.records.values()])), ""
    )
    remarks = _remarks(firsts, staged, _ROUNDS)
    with styled():
        figure, axes = panels([group.setting for group in groups], 1.9, labels_of(handles, remarks))
        for panel, group in zip(axes, groups, strict=True):
            drawn = [candidate for candidate in group.candidates if not candidate.diverged]
            for candidate in drawn:
                records = list(candidate.records.values())
                line = curve(records)
                draw(panel, records, line["round"], 100 * line["accuracy"], styles[titles[candidate.title]])
            panel.margins(x=0.03, y=0.06)
            _shade(panel, [list(candidate.records.values()) for candidate in drawn])
            tidy(panel, "communication round", "test accuracy, %")
            name_lost(panel, [titles[c.title] for c in group.candidates if c.diverged])
        legend(figure, handles, remarks)
    told = sampled(record.config for group in groups for record in group.records)
    return Picture("compared", "Learning curves", f"{_HOW} {told}".strip(), figure)
