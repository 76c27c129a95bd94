"""Tables made from the records of a study: as Markdown, CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Callable

from benchmark.studies.results import Results
from benchmark.tables.accuracy import accuracy, ranks, significance, spread, worst10
from benchmark.tables.best_round import best_round
from benchmark.tables.claims import claims
from benchmark.tables.communication import communication
from benchmark.tables.protocol import calibration, points, rates, tuning
from benchmark.tables.stages import stages
from benchmark.tables.table import MISSING, WORDS, Table

__all__ = ["MISSING", "TABLES", "WORDS", "Table", "make_tables"]

# By the names that studies use.
TABLES: dict[str, Callable[[Results], Table]] = {
    "accuracy": accuracy,
    "significance": significance,
    "ranks": ranks,
    "worst10": worst10,
    "spread": spread,
    "best-round": best_round,
    "claims": claims,
    "communication": communication,
    "stages": stages,
    "calibration": calibration,
    "tuning": tuning,
    "rates": rates,
    "points": points,
}


def make_tables(results: Results) -> list[Table]:
    """All tables of a study, the one that bears its name first."""
    return [TABLES[name](results) for name in results.study.tables]
