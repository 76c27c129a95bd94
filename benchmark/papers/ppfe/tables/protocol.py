"""The table of the study that chooses the protocol."""

from __future__ import annotations

import math

from pfl_benchmark.present.tables.captions import SELECTION, reason
from pfl_benchmark.present.tables.places import heads, lines_table, scaled
from pfl_benchmark.render.table import Cell, Table
from pfl_benchmark.studies.results import Results

_TOTAL = "total deviation"


def calibration(results: Results) -> Table:
    """One row a choice: distance from the paper's figures, cell by cell, by dataset and in all.

    A sum stands only where all of its figures are there, so that an unfinished row is not favoured.
    """
    groups = list(dict.fromkeys(column.group for column in results.grid.columns))
    rows: dict[str, dict[str, Cell]] = {group: {} for group in groups}
    distances: dict[str, dict[str, list[float | None]]] = {}  # by sum and choice
    for variant in results.grid.variants:
        for column in results.grid.columns:
            head, group = f"{variant.title}, {column.title.partition(': ')[0]}", column.group
            place = (variant.title, column.title)
            mean = results.mean(*place)
            printed = results.study.paper
            paper = printed.accuracy(column.paper, variant.printed) if printed and column.paper else None
            gap = None if mean is None or paper is None else mean - paper
            rows[group][head] = Cell(
                mean,
                "percent",
                beside=None if gap is None else Cell(gap, "signed"),
                reason=reason(results, place),
                facts={head: scaled(mean)},
            )
            if column.paper is not None and paper is not None:
                for name in (f"deviation, {column.paper[0]}", _TOTAL):
                    found = distances.setdefault(name, {}).setdefault(group, [])
                    found.append(None if gap is None else abs(gap))
    for name in sorted(distances, key=_TOTAL.__eq__):  # the sum over everything last
        sums = {
            group: math.fsum(d for d in found if d is not None) if None not in found else None
            for group, found in distances[name].items()
        }
        known = [total for total in sums.values() if total is not None]
        field = name.replace(", ", "_").replace(" ", "_")
        for group, total in sums.items():
            best = name == _TOTAL and len(known) > 1 and total == min(known)
            rows[group][name] = Cell(total, "percent", best=best, facts={field: scaled(total)})
    words = f"Test accuracy in % {SELECTION}."
    if distances:
        words += " In brackets: ours minus the paper's. Deviation: sum of the absolute differences."
        words += " Bold: smallest." * any(row[_TOTAL].best for row in rows.values() if _TOTAL in row)
        words += " Rows that differ in dropout alone have the same runs on CIFAR-10."
    columns = list(dict.fromkeys(head for row in rows.values() for head in row))
    cells = [
        [Cell(group, facts={"choice": group}), *(row.get(head, Cell()) for head in columns)]
        for group, row in rows.items()
    ]
    return lines_table(results, heads("choice", *columns), cells, words)
