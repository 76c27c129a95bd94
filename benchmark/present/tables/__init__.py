"""Tables made from the records of a study; papers add their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from pfl_benchmark.present.tables.accuracy import accuracy, best_round, ranks, significance, spread, worst10
from pfl_benchmark.present.tables.calibration import calibration_scores
from pfl_benchmark.present.tables.captions import divergence
from pfl_benchmark.present.tables.clients import clients
from pfl_benchmark.present.tables.communication import communication
from pfl_benchmark.present.tables.differences import differences
from pfl_benchmark.present.tables.domains import domains
from pfl_benchmark.present.tables.newcomers import newcomers
from pfl_benchmark.present.tables.orders import best_and_last, order_kept
from pfl_benchmark.present.tables.over_settings import LEAST, over_settings
from pfl_benchmark.present.tables.shifts import clusters, drift
from pfl_benchmark.present.tables.spent import spent
from pfl_benchmark.present.tables.targets import targets
from pfl_benchmark.present.tables.tuning import points, rates, tuning
from pfl_benchmark.render.table import Table
from pfl_benchmark.studies.papers import makers
from pfl_benchmark.studies.results import Results

__all__ = ["GENERAL", "make_table", "make_tables"]

GENERAL: dict[str, Callable[[Results], Table]] = {
    "accuracy": accuracy,
    "significance": significance,
    "differences": differences,
    "ranks": ranks,
    "over-settings": over_settings,
    "worst10": worst10,
    "spread": spread,
    "calibration-scores": calibration_scores,
    "best-round": best_round,
    "best-and-last": best_and_last,
    "order-kept": order_kept,
    "communication": communication,
    "clients": clients,
    "clusters": clusters,
    "domains": domains,
    "drift": drift,
    "new-clients": newcomers,
    "spent": spent,
    "targets": targets,
    "tuning": tuning,
    "rates": rates,
    "points": points,
}


def make_table(results: Results, kind: str) -> Table:
    """One table of a study (`Study.tables`), named as its files are; the first has the study's title."""
    study, table = results.study, (GENERAL | makers("tables"))[kind](results)
    title = study.title if kind == study.tables[0] else table.title
    return dataclasses.replace(_marked(table, results), name=study.table_name(kind), title=title)


def _marked(table: Table, results: Results) -> Table:
    """A table with the note of what diverged; where no figure is marked, the names of the rows are."""
    found = divergence(results)
    if not found:
        return table
    rows = table.rows
    if not any(cell.diverged for cell in table.cells):
        names = {row for row, column in results.records if results.unsound(row, column)}
        rows = tuple(
            tuple(dataclasses.replace(cell, diverged=cell.value in names) for cell in row) for row in rows
        )
    return dataclasses.replace(table, rows=rows, notes=(*table.notes, *found))


def make_tables(results: Results) -> list[Table]:
    """All tables of a study, the one that bears its name first.

    Statistics over settings are left out of studies that have too few at this scale.
    """
    few = len(results.columns) < LEAST
    return [
        make_table(results, kind) for kind in results.study.tables if not (few and kind == "over-settings")
    ]
