"""What choosing the round by test accuracy would add: the error that reports of the last round avoid."""

from __future__ import annotations

from benchmark.present.tables.places import cells_of, places_table
from benchmark.records.store import Record
from benchmark.render.table import Table
from benchmark.studies.results import Results

__all__ = ["best_round"]


def best_round(results: Results) -> Table:
    """By how much the best evaluated round is better than the last one, which is the result."""

    def values(row: str, column: str) -> list[float]:
        return [gain for record in results.at(row, column) if (gain := _gain(record)) is not None]

    cells = cells_of(results, values)
    counts = {results.configs[place].eval_every for place in results.records}
    which = f" (one in {max(counts)}, and the last)" if len(counts) == 1 and max(counts) > 1 else ""
    text = (
        f"Percentage points of test accuracy by which the best of the evaluated rounds{which} is above the "
        "last round, which is the result: what a report of the best round would add by choosing on test data."
    )
    if any(cells[place].value is None for place in results.records):
        text += " Methods that fine-tune clients after the last round alone have no earlier one to choose."
    return places_table(results, "What the best round on test data would add", cells, text)


def _gain(record: Record) -> float | None:
    """None where the last round alone is evaluated as the result is: with fine-tuned copies."""
    if record.summary["adaptation_samples"]:
        return None
    return max(line["accuracy"] for line in record.rounds if "accuracy" in line) - record.summary["accuracy"]
