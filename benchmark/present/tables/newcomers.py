"""Accuracy of clients that took part in training beside that of clients that begin after it."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from benchmark.present.tables.captions import SELECTION, caption, notes
from benchmark.present.tables.places import heads
from benchmark.records.store import Record
from benchmark.render.table import MISSING, Cell, Head, Table
from benchmark.studies.results import Results
from benchmark.studies.statistics import mean_and_std

__all__ = ["newcomers"]

_FIELDS = (
    "setting", "method", "old", "old_std", "new", "new_std", "difference", "new_worst10", "received",
    "samples", "seeds",
)  # fmt: skip


def newcomers(results: Results) -> Table:
    """A line for every method on every setting."""
    lines = [line for column in results.columns for line in _lines(results, column)]
    settings = [line["setting"] for line in lines]
    configs = [results.configs[place] for place in results.records] or [*results.configs.values()]
    shares = " or ".join(f"{share:g} %" for share in sorted({100 * config.new_clients for config in configs}))
    epochs = " or ".join(map(str, sorted({config.adapt_epochs for config in configs})))
    text = (
        f"Test accuracy in % {SELECTION}, weighted by test samples. Old: the clients that took part in "
        f"training. New: the {shares} that did not, which begin after the last round as the method says, "
        f"with at most {epochs} epochs of fine-tuning or of local training of what is personal; with none "
        "where there is neither. Old and new are different clients. Received and samples: of each new "
        "client, on average, passes over its training data included. Bold: best of its column in a setting."
    )
    if any("old" not in line for line in lines):
        text += f" {MISSING}: no record."
    return Table(
        title="Old and new clients",
        caption=caption(results, text),
        heads=(
            Head("setting", words=True, once=True),
            *heads("method", "old", "new", "new − old", "new, worst 10 %", "received", "samples"),
        ),
        rows=tuple(map(_cells, lines)),
        notes=notes(results),
        rules=tuple(n for n in range(1, len(settings)) if settings[n] != settings[n - 1]),
        fields=_FIELDS,
    )


def _lines(results: Results, column: str) -> list[dict[str, Any]]:
    lines = [{"setting": column, "method": row, **_figures(results.at(row, column))} for row in results.rows]
    for name in ("old", "new"):
        best = max((round(line[name], 4) for line in lines if name in line), default=None)
        for line in lines:
            line[f"best_{name}"] = name in line and round(line[name], 4) == best
    return lines


def _figures(records: list[Record]) -> dict[str, Any]:
    found = [(record.summary, record.summary["new_clients"]) for record in records if record.newcomers]
    if not found:
        return {}
    old, old_std = mean_and_std([own["accuracy"] for own, _ in found])
    new, new_std = mean_and_std([own["accuracy"] for _, own in found])
    return {
        "old": old,
        "old_std": old_std,
        "new": new,
        "new_std": new_std,
        "difference": new - old,
        "new_worst10": fmean(own["accuracy_worst10"] for _, own in found),
        "received": fmean(own["bytes_down"] / own["clients"] for _, own in found),
        "samples": fmean(own["samples"] / own["clients"] for _, own in found),
        "seeds": len(found),
    }


def _cells(line: dict[str, Any]) -> tuple[Cell, ...]:
    facts = {name: line[name] for name in _FIELDS if name in line}
    return (
        Cell(line["setting"], facts=facts),
        Cell(line["method"]),
        Cell(line.get("old"), "percent", deviation=line.get("old_std"), best=line["best_old"]),
        Cell(line.get("new"), "percent", deviation=line.get("new_std"), best=line["best_new"]),
        Cell(line.get("difference"), "signed"),
        Cell(line.get("new_worst10"), "percent"),
        Cell(line.get("received"), "size"),
        Cell(line.get("samples"), ",.0f"),
    )
