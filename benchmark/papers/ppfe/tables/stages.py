"""The table of stages: what each stage of PPFE reaches alone, and what the ensemble of all so far reaches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import pandas as pd

from benchmark.present.tables.captions import caption
from benchmark.present.tables.table import MISSING, Table, tex
from benchmark.records.store import Record
from benchmark.studies.results import Results

__all__ = ["stages"]

_HINDSIGHT = "test, hindsight"
_PARTS = {
    "train, stage": "stage_train_accuracy",
    "test, stage": "stage_test_accuracy",
    "train, ensemble": "ensemble_train_accuracy",
    "test, ensemble": "ensemble_test_accuracy",
    _HINDSIGHT: "hindsight_test_accuracy",
}
_OVER_CLIENTS = {"β": "beta", "ε": "epsilon", "samples": "effective_samples"}
_FIELDS = ["setting", "method", "stage", "personal", *_PARTS.values(), *_OVER_CLIENTS.values()]


def stages(results: Results) -> Table:
    """One row a setting, method and stage, for the records that tell of stages."""
    found = [
        line
        for column in results.columns
        for row in results.rows
        for line in _lines(column, row, results.at(row, column))
    ]
    data = pd.DataFrame(found, columns=_FIELDS)
    heads = ["setting", "method", "stage", "personal", *_PARTS, *_OVER_CLIENTS]
    shown = pd.DataFrame([_shown(line) for line in found], columns=heads)
    hindsight = (shown[_HINDSIGHT] != MISSING).any()
    if not hindsight:  # records that are older than it
        shown = shown.drop(columns=_HINDSIGHT)
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
    if MISSING in shown.to_numpy():
        text += f" {MISSING}: the method predicts with its last stage alone, or not all records tell."
    return Table(
        name=f"{results.study.name}-stages",
        title="PPFE by stage",
        caption=caption(results, text),
        notes=(),
        data=data,
        shown=shown,
        latex=shown.map(tex).rename(columns=tex),
        rules=tuple(starts),
    )


def _lines(column: str, row: str, records: Sequence[Record]) -> list[dict[str, Any]]:
    """A line a stage, means over the seeds; numbers that are not on record are NaN."""
    told = [record for record in records if record.diagnostics.get("stages")]
    lines = []
    for stage in told[0].diagnostics["stages"] if told else ():
        same = [
            (record, other)
            for record in told
            for other in record.diagnostics["stages"]
            if other["stage"] == stage["stage"]
        ]
        line: dict[str, Any] = {"setting": column, "method": row, "stage": stage["stage"]}
        line["personal"] = ", ".join(stage["personal"]) or "none"
        for field in _PARTS.values():
            line[field] = 100 * fmean(_part(record, other, field) for record, other in same)
        for field in _OVER_CLIENTS.values():
            clients = [other.get("clients", {}).get(field) for _, other in same]
            line[field] = fmean(fmean(values) if values else math.nan for values in clients)
        lines.append(line)
    return lines


def _part(record: Record, stage: Mapping[str, Any], field: str) -> float:
    if field.startswith(("ensemble", "hindsight")) and record.config.hyper.get("ensemble") == "last":
        return math.nan
    return float(stage.get(field, math.nan))


def _shown(line: Mapping[str, Any]) -> list[str]:
    def show(field: str, digits: str) -> str:
        return MISSING if math.isnan(line[field]) else format(line[field], digits)

    return [
        line["setting"],
        line["method"],
        str(line["stage"]),
        line["personal"],
        *(show(field, ".2f") for field in _PARTS.values()),
        show("beta", ".2f"),
        show("epsilon", ".3f"),
        show("effective_samples", ".0f"),
    ]
