"""What becomes of methods under shifts with groups of clients, and under those that begin on the way."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from pfl_benchmark.present.tables.captions import caption, notes, sampled_in
from pfl_benchmark.present.tables.places import heads, rules_between
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.table import Cell, Head, Table
from pfl_benchmark.studies.clusters import clusters_found
from pfl_benchmark.studies.results import Results
from pfl_benchmark.studies.statistics import mean_and_std


def clusters(results: Results) -> Table:
    """Methods with clusters, on settings whose shift makes groups of clients: who is in the right cluster."""
    names = (
        "setting", "method", "seeds", "groups", "clusters", "right", "right_std", "accuracy", "accuracy_std",
    )  # fmt: skip
    lines: list[dict[str, Any]] = []
    for column in results.begun:
        for row in results.rows:
            if known := [found for r in results.at(row, column) if (found := clusters_found(r))]:
                counts = (fmean(found.groups for found in known), fmean(found.clusters for found in known))
                right = mean_and_std([found.right for found in known])
                accuracy = mean_and_std(results.values(row, column))
                figures = (column, row, len(known), *counts, *right, *accuracy)
                lines.append(dict(zip(names, figures, strict=True)))
    text = (
        "Clients in the right cluster, in %: those that are together with most of their group, where every "
        "cluster stands for one group at most. With all clients in one cluster it is the share of the "
        "largest group. Groups and clusters: how many have clients."
    )
    return Table(
        title="Clients in the right cluster",
        caption=caption(results, text),
        heads=(
            Head("setting", words=True, once=True),
            *heads("method", "groups", "clusters", "right cluster", "accuracy"),
        ),
        rows=tuple(
            (
                Cell(line["setting"], facts=line),
                Cell(line["method"]),
                Cell(line["groups"], "rank"),
                Cell(line["clusters"], "rank"),
                Cell(line["right"], "percent", deviation=line["right_std"]),
                Cell(line["accuracy"], "percent", deviation=line["accuracy_std"]),
            )
            for line in lines
        ),
        fields=names,
        rules=rules_between([line["setting"] for line in lines]),
    )


def drift(results: Results) -> Table:
    """Settings in which clients' data change on the way: accuracy around that round, and the way back.

    Where the last evaluation is of other models than those on the way there is nothing to compare.
    """
    lines = [
        (column, row, _drifts(records))
        for column in results.begun
        for row in results.rows
        if (records := [r for r in results.at(row, column) if "drift" in r.summary])
    ]
    text = (
        "Test accuracy in % before the round in which clients' data change (on the data until then), after "
        "it (on the new ones) and after the last round; recovery: rounds until it is as high as before at "
        "an evaluation, in the seeds in which it is. –: on the way the global model is evaluated, at the "
        "end what clients make of it."
    )
    names = ("setting", "method", "seeds", "before", "after", "accuracy", "recovery", "recovered")
    return Table(
        title="Drift",
        caption=caption(results, text, sampled_in(results)),
        heads=(
            Head("setting", words=True, once=True),
            *heads("method", "before", "after", "last round", "recovery", "seeds that recover"),
        ),
        rows=tuple(
            (
                Cell(column, facts={"setting": column, "method": row, **{n: line.get(n) for n in names[2:]}}),
                Cell(row),
                *(Cell(line[name], "percent", deviation=line[f"{name}_std"]) for name in names[3:6]),
                Cell(line["recovery"], "rank"),
                Cell(f"{line['recovered']} of {line['seeds']}" if line["before"] is not None else None),
            )
            for column, row, line in lines
        ),
        notes=notes(results),
        fields=names,
        rules=rules_between([line[0] for line in lines]),
    )


def _drifts(records: Sequence[Record]) -> dict[str, Any]:
    """Means over the seeds of a place; of the last round alone where other models are evaluated before."""
    found = [{**record.summary["drift"], "accuracy": record.summary["accuracy"]} for record in records]
    line: dict[str, Any] = {
        "seeds": len(found),
        **dict.fromkeys(("before", "after", "recovery", "recovered")),
    }
    line["accuracy"], line["accuracy_std"] = mean_and_std([float(own["accuracy"]) for own in found])
    if not all(_evaluated_alike(record) for record in records):
        return {**line, "before_std": None, "after_std": None}
    for name in ("before", "after"):
        line[name], line[f"{name}_std"] = mean_and_std([float(own[name]) for own in found])
    back = [own["recovery"] for own in found if own["recovery"] is not None]
    return {**line, "recovered": len(back), "recovery": float(fmean(back)) if back else None}


def _evaluated_alike(record: Record) -> bool:
    """Whether the models of the round before a drift are of the kind that is evaluated at the end."""
    before = next(line for line in record.rounds if line["round"] == record.summary["drift"]["round"] - 1)
    return bool(before["evaluated"] == record.summary["evaluated"])
