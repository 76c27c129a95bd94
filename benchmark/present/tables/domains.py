"""Accuracy by domain, where every client has samples of one (``--partition domains``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.api import DATASETS
from pfl_benchmark.present.tables.captions import SELECTION, caption, notes
from pfl_benchmark.present.tables.places import heads, rules_between
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.table import Cell, Head, Plain, Table
from pfl_benchmark.studies.results import Results
from pfl_benchmark.studies.statistics import mean_and_std


def domains(results: Results) -> Table:
    """Settings and methods × domains, of settings whose domains have equally many clients."""
    columns = [column for column in results.begun if _names(results, column)]
    names = _names(results, columns[0]) if columns else ()
    columns = [column for column in columns if _names(results, column) == names]
    places = [(row, column) for column in columns for row in results.rows if results.at(row, column)]
    return Table(
        title="Accuracy by domain",
        caption=caption(results, f"Test accuracy in % over the samples of a domain's clients {SELECTION}."),
        heads=(Head("setting", words=True, once=True), *heads("method", *names)),
        rows=tuple(
            (Cell(column), Cell(row), *_cells(results.at(row, column), row, column, names))
            for row, column in places
        ),
        notes=notes(results),
        rules=rules_between([column for _, column in places]),
        fields=("setting", "method", "domain", "mean", "std", "seeds"),
        line="column",
    )


def _cells(records: Sequence[Record], row: str, column: str, names: Sequence[str]) -> list[Cell]:
    found = []
    for number, name in enumerate(names):
        values = []
        for record in records:
            own = np.array_split(np.arange(len(record.accuracies)), len(names))[number]
            values.append(float(np.average(record.accuracies[own], weights=record.test_samples[own])))
        mean, std = mean_and_std(values)
        facts: dict[str, Plain] = {
            "setting": column, "method": row, "domain": name, "seeds": len(values), "mean": 100 * mean,
            "std": None if std is None else 100 * std,
        }  # fmt: skip
        found.append(Cell(mean, "percent", deviation=std, facts=facts))
    return found


def _names(results: Results, column: str) -> tuple[str, ...]:
    """The domains of a setting, in the order of client numbers; none where they cannot be told."""
    configs = [config for place, config in results.configs.items() if place[1] == column]
    named = {_named(config) for config in configs}
    return named.pop() if len(named) == 1 else ()


def _named(config: RunConfig) -> tuple[str, ...]:
    if config.partition != "domains" or config.dataset not in DATASETS or config.new_clients:
        return ()
    names = DATASETS[config.dataset].user_names
    return (
        tuple(name.replace("_", " ") for name in names) if names and not config.clients % len(names) else ()
    )
