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
    lines = []
    for column in results.begun:
        for row in results.rows:
            known = [share for r in results.at(row, column) if (share := clusters_found(r)) is not None]
            if known:
                mean, std = mean_and_std(known)
                accuracy, around = mean_and_std(results.values(row, column))
                lines.append((column, row, len(known), mean, std, accuracy, around))
    text = (
        "Clients in the right cluster, in %: those that are together with most of their group, where every "
        "cluster stands for one group at most. With all clients in one cluster it is the share of the "
        "largest group."
    )
    names = ("setting", "method", "seeds", "right", "right_std", "accuracy", "accuracy_std")
    return Table(
        title="Clients in the right cluster",
        caption=caption(results, text),
        heads=(Head("setting", words=True, once=True), *heads("method", "right cluster", "accuracy")),
        rows=tuple(
            (
                Cell(line[0], facts=dict(zip(names, line, strict=True))),
                Cell(line[1]),
                Cell(line[3], "percent", deviation=line[4]),
                Cell(line[5], "percent", deviation=line[6]),
            )
            for line in lines
        ),
        fields=names,
        rules=rules_between([line[0] for line in lines]),
    )


def drift(results: Results) -> Table:
    """Settings in which clients' data change on the way: accuracy around that round, and the way back."""
    lines = [
        (column, row, _drifts(records))
        for column in results.begun
        for row in results.rows
        if (records := [r for r in results.at(row, column) if "drift" in r.summary])
    ]
    text = (
        "Test accuracy in % before the round in which clients' data change (on the data until then), after "
        "it (on the new ones) and after the last round; recovery: rounds until it is as high as before at "
        "an evaluation, in the seeds in which it is."
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
                Cell(f"{line['recovered']} of {line['seeds']}"),
            )
            for column, row, line in lines
        ),
        notes=notes(results),
        fields=names,
        rules=rules_between([line[0] for line in lines]),
    )


def _drifts(records: Sequence[Record]) -> dict[str, Any]:
    """Means over the seeds of a place."""
    found = [{**record.summary["drift"], "accuracy": record.summary["accuracy"]} for record in records]
    line: dict[str, Any] = {"seeds": len(found)}
    for name in ("before", "after", "accuracy"):
        line[name], line[f"{name}_std"] = mean_and_std([float(own[name]) for own in found])
    back = [own["recovery"] for own in found if own["recovery"] is not None]
    return {**line, "recovered": len(back), "recovery": float(fmean(back)) if back else None}
