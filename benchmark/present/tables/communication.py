"""What methods send, by stage, beside what they reach with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmark.present.tables.captions import SELECTION, caption, notes
from benchmark.present.tables.places import heads
from benchmark.records.store import Record
from benchmark.render.table import MISSING, Cell, Head, Table
from benchmark.studies.results import Results
from benchmark.studies.statistics import mean_and_std

__all__ = ["communication", "traffic"]

_SUMS = ("bytes_up", "bytes_down", "bytes_broadcast", "samples", "adaptation_samples", "participants")


def traffic(records: Sequence[Record]) -> dict[int, dict[str, float]]:
    """Bytes and samples by stage, means over the records (seeds).

    Returns:
        By stage: ``rounds``, ``bytes_up``, ``bytes_down``, ``bytes_broadcast``, ``samples``,
        ``adaptation_samples``, ``participants``.
    """
    stages: dict[int, dict[str, float]] = {}
    for record in records:
        for line in record.rounds:
            sums = stages.setdefault(line["stage"], dict.fromkeys(("rounds", *_SUMS), 0.0))
            sums["rounds"] += 1
            for name in _SUMS:
                sums[name] += line[name]
    return {
        stage: {name: total / len(records) for name, total in sums.items()}
        for stage, sums in sorted(stages.items())
    }


def communication(results: Results, remark: str = "") -> Table:
    """Bytes by method and stage, as shares of FedAvg's, with accuracy and training samples.

    Args:
        remark: to stand in the caption, before seeds and protocol.
    """
    found = [line for column in results.columns for line in _lines(results, column)]
    settings = [line["setting"] for line in found]
    rules = [place for place in range(1, len(found)) if settings[place] != settings[place - 1]]
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
        rules=tuple(rules),
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
    reference = next((v.title for v in results.grid.variants if v.algo == "fedavg"), "")
    fedavg = results.at(reference, column)
    whole = _sum(traffic(fedavg).values()) if fedavg else None
    lines: list[dict[str, Any]] = []
    for row in results.rows:
        records = results.at(row, column)
        if not records:
            lines.append({"setting": column, "method": row, "stage": "all"})
            continue
        stages = traffic(records)
        accuracy = mean_and_std(results.values(row, column))[0]
        named = {"setting": column, "method": row}
        lines.append({**named, "stage": "all", **_line(_sum(stages.values()), whole), "accuracy": accuracy})
        if len(stages) > 1:
            lines.extend(
                {**named, "stage": str(stage), **_line(sums, whole)} for stage, sums in stages.items()
            )
    return lines


def _sum(stages: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found = list(stages)
    return {name: sum(stage[name] for stage in found) for name in found[0]}


def _line(sums: Mapping[str, float], fedavg: Mapping[str, float] | None) -> dict[str, float]:
    total = _total(sums)
    line = {name: sums[name] for name in ("rounds", "bytes_up", "bytes_down", "bytes_broadcast")}
    line |= {"bytes_total": total, "samples": sums["samples"] + sums["adaptation_samples"]}
    if fedavg is not None:
        model = fedavg["bytes_up"] / fedavg["participants"]
        line["up_of_fedavg"] = sums["bytes_up"] / fedavg["bytes_up"]
        line["share_of_fedavg"] = total / _total(fedavg)
        line["share_of_model"] = sums["bytes_up"] / sums["participants"] / model
    return line


def _total(sums: Mapping[str, float]) -> float:
    return sums["bytes_up"] + sums["bytes_down"] + sums["bytes_broadcast"]


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
