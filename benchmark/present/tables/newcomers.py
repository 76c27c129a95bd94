"""Accuracy of clients that begin after the training, beside the others', and theirs had they taken part."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np

from pfl_benchmark.present.tables.captions import SELECTION, caption, notes
from pfl_benchmark.present.tables.places import heads, rules_between
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.table import MISSING, Cell, Head, Table
from pfl_benchmark.studies.grid import Column
from pfl_benchmark.studies.results import Results
from pfl_benchmark.studies.statistics import mean_and_std, wilcoxon

_FIELDS = (
    "setting", "method", "old", "old_std", "new", "new_std", "part", "difference", "p", "new_worst10",
    "received", "samples", "seeds",
)  # fmt: skip
_HEADS = ("old", "new", "taking part", "difference", "p", "new, worst 10 %", "received", "samples")


def newcomers(results: Results) -> Table:
    """A line for every method on every setting with new clients."""
    shown = {title for (_, title), config in results.configs.items() if config.new_clients}
    columns = [column for column in results.grid.columns if column.title in shown]
    titles = {column.title for column in columns}
    begun = {place: found for place, found in results.records.items() if place[1] in titles}
    own = dataclasses.replace(results, records=begun)
    lines = [line for column in columns for line in _lines(results, column)]
    configs = [config for (_, title), config in own.configs.items() if title in titles]
    shares = " or ".join(f"{share:g} %" for share in sorted({100 * config.new_clients for config in configs}))
    epochs = " or ".join(map(str, sorted({config.adapt_epochs for config in configs})))
    text = (
        f"Test accuracy in % {SELECTION}, weighted by test samples. Old: the clients that took part in "
        f"training. New: the {shares} that did not, which begin after the last round as the method says, "
        f"with at most {epochs} epochs of fine-tuning or of local training of what is personal; with none "
        "where there is neither. Taking part: the new clients again, in the run with the same seed in which "
        "all clients take part. Difference: new minus taking part, and the p-value of a paired two-sided "
        "Wilcoxon signed-rank test over these clients and seeds. Received and samples: of each new client, "
        "on average, passes over its training data included. Bold: best of its column in a setting."
    )
    if any("old" not in line or "part" not in line for line in lines):
        text += f" {MISSING}: no record."
    return Table(
        title="Old and new clients",
        caption=caption(own, text),
        heads=(Head("setting", words=True, once=True), *heads("method", *_HEADS)),
        rows=tuple(map(_cells, lines)),
        notes=notes(own),
        rules=rules_between([line["setting"] for line in lines]),
        fields=_FIELDS,
    )


def _lines(results: Results, column: Column) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [
        {
            "setting": column.title,
            "method": row,
            **_figures(results.at(row, column.title), _of_everyone(results, row, column.title)),
        }
        for row in results.rows
    ]
    for name in ("old", "new", "part"):
        best = max((round(line[name], 4) for line in lines if name in line), default=None)
        for line in lines:
            line[f"best_{name}"] = name in line and round(line[name], 4) == best
    return lines


def _of_everyone(results: Results, row: str, column: str) -> Mapping[int, Record]:
    """The runs of another column, by seed, that are the same but that all clients take part."""
    config = results.configs.get((row, column))
    if config is None:
        return {}
    alike = dataclasses.replace(config, new_clients=0.0).settled()
    for other in results.columns:
        found = results.configs.get((row, other))
        if found is not None and found.settled() == alike:
            return results.records.get((row, other), {})
    return {}


def _figures(records: list[Record], everyone: Mapping[int, Record]) -> dict[str, Any]:
    """Of the runs with new clients; `everyone`: by seed, those in which all clients take part."""
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
        **_compared(records, everyone),
        "new_worst10": fmean(own["accuracy_worst10"] for _, own in found),
        "received": fmean(own["bytes_down"] / own["clients"] for _, own in found),
        "samples": fmean(own["samples"] / own["clients"] for _, own in found),
        "seeds": len(found),
    }


def _compared(records: list[Record], everyone: Mapping[int, Record]) -> dict[str, float]:
    """The new clients against themselves in the runs of the same seeds and data in which they take part."""
    pairs = [
        (record.newcomers, other.accuracies[[*record.new_clients]])
        for record in records
        if record.newcomers and record.new_clients
        and (other := everyone.get(record.config.seed)) and not other.data.differs(record.data)
    ]  # fmt: skip
    if not pairs:
        return {}
    new = np.concatenate([own.accuracies for own, _ in pairs])
    part = np.concatenate([accuracies for _, accuracies in pairs])
    means = [(own.summary()["accuracy"], np.average(other, weights=own.total)) for own, other in pairs]
    began, took_part = np.mean(means, axis=0).tolist()
    return {"part": took_part, "difference": began - took_part, "p": wilcoxon(new, part)}


def _cells(line: dict[str, Any]) -> tuple[Cell, ...]:
    facts = {name: line[name] for name in _FIELDS if name in line}
    return (
        Cell(line["setting"], facts=facts),
        Cell(line["method"]),
        Cell(line.get("old"), "percent", deviation=line.get("old_std"), best=line["best_old"]),
        Cell(line.get("new"), "percent", deviation=line.get("new_std"), best=line["best_new"]),
        Cell(line.get("part"), "percent", best=line["best_part"]),
        Cell(line.get("difference"), "signed"),
        Cell(line.get("p"), "p"),
        Cell(line.get("new_worst10"), "percent"),
        Cell(line.get("received"), "size"),
        Cell(line.get("samples"), ",.0f"),
    )
