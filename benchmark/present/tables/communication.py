"""What methods send, by stage, beside what they reach with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from pfl_benchmark.present.tables.captions import SELECTION, caption, notes
from pfl_benchmark.present.tables.places import heads, rules_between
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.table import MISSING, Cell, Head, Table
from pfl_benchmark.studies.results import Results
from pfl_benchmark.studies.statistics import mean_and_std

_SENT = ["bytes_up", "bytes_down", "bytes_broadcast"]


def communication(results: Results, remark: str = "") -> Table:
    """Bytes by method and stage, as shares of FedAvg's, with accuracy; `remark` goes into the caption."""
    found = [line for column in results.columns for line in _lines(results, column)]
    text = (
        "Bytes of tensors sent over the whole run: up (clients to server), down (server to participants), "
        "broadcast (the last aggregate of a stage or run to every client). "
        "Total: also as a share of FedAvg's on the same setting. Sent: tensors that a participant sends up, "
        "in % of the whole model. Samples: trained on, fine-tuning of the final model included. "
        f"Accuracy in % {SELECTION}, weighted by test samples."
    )
    more = [
        f"{line['method']} on {line['setting']} ({100 * line['up_of_fedavg']:.1f} %)"
        for line in found
        if line["stage"] == "all" and line.get("up_of_fedavg", 1) >= 1.0005
    ]
    if more:
        text += f" More is sent up than by FedAvg: {', '.join(more)}."
    if any("rounds" not in line for line in found):
        text += f" {MISSING}: no record."
    return Table(
        title="Bytes by method and stage",
        caption=caption(results, text, remark),
        heads=(Head("setting", words=True, once=True), *heads("method", "stage", *_FIGURES, "accuracy")),
        rows=tuple(map(_cells, found)),
        notes=notes(results),
        rules=rules_between([line["setting"] for line in found]),
        fields=_FIELDS,
    )


_FIELDS = (
    "setting", "method", "stage", "rounds", "bytes_up", "bytes_down", "bytes_broadcast", "bytes_total",
    "share_of_fedavg", "share_of_model", "samples", "accuracy",
)  # fmt: skip
_FIGURES = {  # heads, entries of a line and their forms
    "rounds": ("rounds", "g"),
    "up": ("bytes_up", "size"),
    "down": ("bytes_down", "size"),
    "broadcast": ("bytes_broadcast", "size"),
    "total": ("bytes_total", "size"),
    "of FedAvg's": ("share_of_fedavg", "share"),
    "sent": ("share_of_model", "share"),
    "samples": ("samples", ",.0f"),
}


def _lines(results: Results, column: str) -> list[dict[str, Any]]:
    """A line for every method and, where it has several, for each of its stages."""
    fedavg = _stages([*results.fedavg[column].values()])
    lines: list[dict[str, Any]] = []
    for row in results.rows:
        stages = _stages(results.at(row, column))
        named = {"setting": column, "method": row, "stage": "all"}
        if stages is None:
            lines.append(named)
            continue
        if fedavg is not None:
            whole = fedavg.loc["all"]
            stages["up_of_fedavg"] = stages["bytes_up"] / whole["bytes_up"]
            stages["share_of_fedavg"] = stages["bytes_total"] / whole["bytes_total"]
            model = whole["bytes_up"] / whole["participants"]
            stages["share_of_model"] = stages["bytes_up"] / stages["participants"] / model
        accuracy = mean_and_std(results.values(row, column))[0]
        found: dict[Any, dict[Any, Any]] = stages.to_dict("index")
        lines.append({**named, **found.pop("all"), "accuracy": accuracy})
        if len(found) > 1:
            lines.extend({**named, "stage": str(stage), **line} for stage, line in found.items())
    return lines


def _stages(records: Sequence[Record]) -> pd.DataFrame | None:
    """Rounds, bytes, samples and participants by stage and in ``all``, means over the records (seeds)."""
    if not records:
        return None
    names = ["stage", *_SENT, "samples", "adaptation_samples", "participants"]
    rounds = pd.concat([pd.DataFrame(record.rounds, columns=names) for record in records])
    rounds = rounds.assign(
        rounds=1,
        bytes_total=rounds[_SENT].sum(axis=1),
        samples=rounds["samples"] + rounds["adaptation_samples"],
    )
    stages = rounds.groupby("stage").sum() / len(records)
    stages.loc["all"] = stages.sum()
    return stages


def _cells(line: dict[str, Any]) -> tuple[Cell, ...]:
    whole = line["stage"] == "all"
    facts = {name: line[name] for name in _FIELDS if name in line}
    return (
        Cell(line["setting"], facts=facts),
        Cell(line["method"], again=not whole),
        Cell(line["stage"]),
        *(Cell(line.get(name), form) for name, form in _FIGURES.values()),
        Cell(line.get("accuracy"), "percent") if whole else Cell(""),
    )
