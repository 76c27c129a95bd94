"""How far methods' probabilities can be believed, and how many clients are worse off with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pfl_benchmark.present.tables.captions import SELECTION, caption, notes
from pfl_benchmark.present.tables.places import heads, rules_between
from pfl_benchmark.records.schema import CALIBRATION
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.table import MISSING, Cell, Head, Table
from pfl_benchmark.studies.results import Results
from pfl_benchmark.studies.statistics import mean_and_std, share_worse

_SUMMED = ("accuracy", "test_loss", "brier", "ece", "ece_debiased", "accuracy_worst10", "accuracy_std")
_SCALED = tuple(name for name in CALIBRATION if name.startswith("scaled_"))
_FIELDS = ("setting", "method", *_SUMMED, "worse_than_local", "worse_than_fedavg", "seeds")
_HEADS = (
    "accuracy", "NLL", "Brier", "ECE", "debiased", "worst 10 %", "spread", "worse than Local Only",
    "worse than FedAvg",
)  # fmt: skip
_SCALED_HEADS = ("NLL at T", "Brier at T", "ECE at T", "debiased at T")
_FORMS = ("percent", ".3f", ".3f", *["percent"] * 6, ".3f", ".3f", "percent", "percent")


def calibration_scores(results: Results) -> Table:
    """A line for every method and setting with all scores."""
    lines = [_line(results, row, column) for column in results.begun for row in results.rows]
    lines = [line for line in lines if line]
    text = (
        f"Scores {SELECTION}. Accuracy, calibration error (ECE, 15 bins of equal mass, and debiased), mean "
        "accuracy of the 10 % of clients that fare worst and deviation of accuracy over clients in %; "
        "negative log-likelihood (NLL) and Brier score: the smaller, the better. Worse: % of clients with a "
        "lower accuracy than under the other method, over the seeds and splits that both have."
    )
    cooled = any(line["scaled_ece"] is not None for line in lines)
    if cooled:
        text += " At T: after each client has fitted a temperature on its training samples."
    names = ("method", *_HEADS, *(_SCALED_HEADS if cooled else ()))
    fields = (*_FIELDS[:-1], *(_SCALED if cooled else ()), "seeds")
    if any(line.get(name) is None for line in lines for name in fields):
        text += f" {MISSING}: no record, or an older one."
    return Table(
        title="Scores beside accuracy",
        caption=caption(results, text),
        heads=(Head("setting", words=True, once=True), *heads(*names)),
        rows=tuple(_cells(line, fields) for line in lines),
        notes=notes(results),
        rules=rules_between([line["setting"] for line in lines]),
        fields=fields,
    )


def _line(results: Results, row: str, column: str) -> dict[str, Any]:
    records = results.at(row, column)
    if not records:
        return {}
    line: dict[str, Any] = {"setting": column, "method": row, "seeds": len(records)}
    for name in (*_SUMMED, *_SCALED):
        known = [record.summary[name] for record in records if name in record.summary]
        line[name], line[f"{name}_std"] = mean_and_std(known) if known else (None, None)
    own = results.samples(row, column)
    for name, others in (("local", results.local), ("fedavg", results.fedavg)):
        line[f"worse_than_{name}"] = share_worse(own, _samples(others.get(column, {})))
    return line


def _samples(records: Mapping[int, Record]) -> dict[tuple[int, str], np.ndarray]:
    return {(seed, record.split): record.accuracies for seed, record in records.items()}


def _cells(line: dict[str, Any], fields: Sequence[str]) -> tuple[Cell, ...]:
    facts = {name: line[name] for name in fields}
    return (
        Cell(line["setting"], facts=facts),
        Cell(line["method"]),
        *(
            Cell(line[name], form, deviation=line.get(f"{name}_std") if name == "accuracy" else None)
            for name, form in zip(fields[2:-1], _FORMS, strict=False)
        ),
    )
