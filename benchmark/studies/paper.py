"""The figures printed in the paper, to stand beside ours."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from benchmark.errors import UserError
from benchmark.studies.grid import Column, Variant

__all__ = ["PAPER_RESULTS", "paper_accuracy"]

PAPER_RESULTS = Path(__file__).resolve().parents[2] / "results" / "paper_results.csv"


def paper_accuracy(table: str, variant: Variant, column: Column) -> float | None:
    """The paper's accuracy (0..1) of one cell of a table; None where it prints none.

    Raises:
        UserError: the file of the paper's figures is not there.
    """
    if not table or column.paper is None:
        return None
    return _figures().get((table, *column.paper, variant.paper or variant.title))


@cache
def _figures() -> dict[tuple[str, ...], float]:
    """By table, dataset, K, S or alpha, and method."""
    try:
        with PAPER_RESULTS.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise UserError(
            f"cannot read the paper's figures: {PAPER_RESULTS}: {error.strerror}; it belongs to the checkout"
        ) from error
    keys = ("table", "dataset", "K", "S_or_alpha", "method")
    return {tuple(row[key] for key in keys): float(row["accuracy"]) / 100 for row in rows if row["accuracy"]}
