"""The figures printed in the paper."""

from __future__ import annotations

from pathlib import Path

from pfl_benchmark.studies.printed import PrintedTable

__all__ = ["PAPER_RESULTS", "printed"]

PAPER_RESULTS = Path(__file__).parents[1] / "paper_results.csv"


def printed(table: str) -> PrintedTable:
    """A table of the paper by its name: main, sparse, dirichlet, no_mr, fixed_heads or progression."""
    return PrintedTable(table, PAPER_RESULTS)
