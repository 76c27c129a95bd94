"""Tables of PPFE's stages: what each reaches alone and in the ensemble of all so far, and what is sent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from pfl_benchmark.papers.ppfe.recorded import stages_of
from pfl_benchmark.present.tables.captions import caption
from pfl_benchmark.present.tables.communication import communication
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.table import MISSING, Cell, Head, Table
from pfl_benchmark.studies.results import Results

_SENT_IN_PAPER = "For the stages 2, 3 and 4 on CIFAR-100 the paper states 98.8, 83.8 and 19.5 % sent."
_HINDSIGHT = "hindsight_test_accuracy"
_PARTS = {
    "train, stage": "stage_train_accuracy",
    "test, stage": "stage_test_accuracy",
    "train, ensemble": "ensemble_train_accuracy",
    "test, ensemble": "ensemble_test_accuracy",
    "test, hindsight": _HINDSIGHT,
}
_OVER_CLIENTS = {"β": ("beta", ".2f"), "ε": ("epsilon", ".3f"), "samples": ("effective_samples", ".0f")}
_WORDS = ("setting", "method", "personal")


def stages_sent(results: Results) -> Table:
    """Bytes by method and stage, with the paper's words on CIFAR-100 where that is among the settings."""
    there = any(config.dataset == "cifar100" for config in results.configs.values())
    return communication(results, _SENT_IN_PAPER if there else "")


def stages(results: Results) -> Table:
    """One row a setting, method and stage, for the records that tell of stages."""
    found = [
        line
        for column in results.columns
        for row in results.rows
        for line in _lines(column, row, results.at(row, column))
    ]
    hindsight = any(not math.isnan(line[_HINDSIGHT]) for line in found)
    # Older records do not have it.
    figures = {head: (field, ".2f") for head, field in _PARTS.items() if hindsight or field != _HINDSIGHT}
    figures |= _OVER_CLIENTS
    heads = ("setting", "method", "stage", "personal", *figures)
    rows = [_cells(line, figures) for line in found]
    starts = [place for place, line in enumerate(found) if place and line["stage"] == 1]
    text = (
        "Accuracy in % at the end of each stage, clients weighted by samples: of the stage's own model, "
        "and of the weighted ensemble of all stages so far, the last of which is the method's result. "
        "Personal: layers that are not shared. Means over clients: weight β in the ensemble, weighted "
        "training loss ε, effective training samples (Σω)²/Σω² under the weights for the next stage."
    )
    if hindsight:
        text += (
            " Hindsight: what the stages so far would reach with weights that all clients share, the best of "
            "all non-negative ones in even steps (tenths for up to five stages), chosen by the test samples "
            "themselves: no result, but about what better weights could bring."
        )
    if not found:
        text += " No record tells of stages."
    if any(cell.value is None for row in rows for cell in row):
        text += f" {MISSING}: the method predicts with its last stage alone, or not all records tell."
    return Table(
        title="PPFE by stage",
        caption=caption(results, text),
        heads=tuple(Head(head, words=head in _WORDS) for head in heads),
        rows=tuple(rows),
        rules=tuple(starts),
        fields=(*heads[:4], *_PARTS.values(), *(field for field, _ in _OVER_CLIENTS.values())),
    )


def _lines(column: str, row: str, records: Sequence[Record]) -> list[dict[str, Any]]:
    """A line a stage, means over the seeds; numbers that are not on record are NaN."""
    told = [(record, found) for record in records if (found := stages_of(record))]
    lines = []
    for stage in told[0][1] if told else ():
        same = [
            (record, other) for record, found in told for other in found if other["stage"] == stage["stage"]
        ]
        line: dict[str, Any] = {"setting": column, "method": row, "stage": stage["stage"]}
        line["personal"] = ", ".join(stage["personal"]) or "none"
        for field in _PARTS.values():
            line[field] = 100 * fmean(_part(record, other, field) for record, other in same)
        for field, _ in _OVER_CLIENTS.values():
            clients = [other.get("clients", {}).get(field) for _, other in same]
            line[field] = fmean(fmean(values) if values else math.nan for values in clients)
        lines.append(line)
    return lines


def _part(record: Record, stage: Mapping[str, Any], field: str) -> float:
    if field.startswith(("ensemble", "hindsight")) and record.config.hyper.get("ensemble") == "last":
        return math.nan
    return float(stage.get(field, math.nan))


def _cells(line: Mapping[str, Any], figures: Mapping[str, tuple[str, str]]) -> tuple[Cell, ...]:
    return (
        Cell(line["setting"], facts=line),
        Cell(line["method"]),
        Cell(line["stage"], "d"),
        Cell(line["personal"]),
        *(Cell(line[field], form) for field, form in figures.values()),
    )
