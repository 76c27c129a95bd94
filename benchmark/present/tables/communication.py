"""What methods send, by stage, beside what they reach with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from benchmark.console.terminal import size
from benchmark.present.tables.captions import SELECTION, caption, notes
from benchmark.present.tables.table import MISSING, Table, percent, tex
from benchmark.records.store import Record
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


def communication(results: Results) -> Table:
    """Bytes by method and stage, as shares of FedAvg's, with accuracy and training samples."""
    found = [line for column in results.columns for line in _lines(results, column)]
    data = pd.DataFrame(found, columns=_FIELDS)
    shown = pd.DataFrame([_shown(line) for line in found], columns=list(_HEADS))
    firsts = [place for place, line in enumerate(found) if line["stage"] == "all"]
    latex = shown.map(tex).rename(columns=tex)
    repeated = shown["setting"].eq(shown["setting"].shift())
    latex.loc[repeated, "setting"] = ""
    rules = tuple(place for place in firsts if place and not repeated[place])
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
    if results.study.remark and any(config.dataset == "cifar100" for config in results.configs.values()):
        text += f" {results.study.remark}"
    return Table(
        name=results.study.name,
        title=results.study.title,
        caption=caption(results, text),
        notes=notes(results),
        data=data,
        shown=shown,
        latex=latex,
        rules=rules,
    )


_FIELDS = (
    "setting",
    "method",
    "stage",
    "rounds",
    "bytes_up",
    "bytes_down",
    "bytes_broadcast",
    "bytes_total",
    "share_of_fedavg",
    "share_of_model",
    "samples",
    "accuracy",
)
_HEADS = (
    "setting",
    "method",
    "stage",
    "rounds",
    "up",
    "down",
    "broadcast",
    "total",
    "of FedAvg's",
    "sent",
    "samples",
    "accuracy",
)


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


def _shown(line: dict[str, Any]) -> list[str]:
    def show(name: str, form: Any) -> str:
        return form(line[name]) if name in line else MISSING

    stage = line["stage"]
    return [
        line["setting"],
        line["method"] if stage == "all" else "",
        stage,
        show("rounds", lambda count: f"{count:g}"),
        *(show(name, size) for name in ("bytes_up", "bytes_down", "bytes_broadcast", "bytes_total")),
        *(show(name, lambda share: f"{100 * share:.1f} %") for name in ("share_of_fedavg", "share_of_model")),
        show("samples", lambda count: f"{count:,.0f}"),
        show("accuracy", percent) if stage == "all" else "",
    ]
