"""Tables made from the records of a study: as Markdown, CSV and LaTeX; packs add their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from benchmark.present.tables.accuracy import accuracy, ranks, significance, spread, worst10
from benchmark.present.tables.best_round import best_round
from benchmark.present.tables.claims import claims
from benchmark.present.tables.communication import communication
from benchmark.present.tables.protocol import calibration, points, rates, tuning
from benchmark.present.tables.table import MISSING, WORDS, Table
from benchmark.studies.packs import offered
from benchmark.studies.results import Results

__all__ = ["MISSING", "WORDS", "Table", "make_tables", "table_maker"]

_GENERAL: dict[str, Callable[[Results], Table]] = {
    "accuracy": accuracy,
    "significance": significance,
    "ranks": ranks,
    "worst10": worst10,
    "spread": spread,
    "best-round": best_round,
    "claims": claims,
    "communication": communication,
    "calibration": calibration,
    "tuning": tuning,
    "rates": rates,
    "points": points,
}


def table_maker(name: str) -> Callable[[Results], Table]:
    """What makes the tables that studies call so."""
    return _makers()[name]


@cache
def _makers() -> dict[str, Callable[[Results], Table]]:
    packs = {name: maker for pack in offered("tables") for name, maker in pack.TABLES.items()}
    return {**_GENERAL, **packs}


def make_tables(results: Results) -> list[Table]:
    """All tables of a study, the one that bears its name first."""
    return [table_maker(name)(results) for name in results.study.tables]
