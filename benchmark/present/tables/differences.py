"""By how much every method is better or worse than the one that a study names."""

from __future__ import annotations

from pfl_benchmark.present.tables.captions import (
    DEPENDENT,
    SELECTION,
    TEST,
    caption,
    lacks_seeds,
    notes,
    reason,
)
from pfl_benchmark.present.tables.places import facts_of, heads
from pfl_benchmark.render.forms import p_value
from pfl_benchmark.render.table import MISSING, Cell, Table
from pfl_benchmark.studies.results import Place, Results
from pfl_benchmark.studies.statistics import Comparison, compare_with

_FIELDS = (
    "setting", "reference", "method", "pairs", "difference", "standard_error", "direction", "p", "p_holm",
)  # fmt: skip


def differences(results: Results) -> Table:
    """Every row minus the study's reference, on the clients of the seeds and splits that both have.

    Raises:
        ValueError: the reference is no row of the study.
    """
    reference, tests = results.study.reference, {}
    if reference not in (variant.title for variant in results.grid.variants):
        raise ValueError(f"study {results.study.name}: its reference {reference!r} is none of its rows")
    for column in results.columns:
        samples = {row: found for row in results.rows if (found := results.samples(row, column))}
        tests[column] = compare_with(samples, reference) if reference in samples else {}
    text = (
        f"Percentage points of test accuracy {SELECTION} by which a method is above {reference}: mean over "
        f"the clients and seeds that both have, unweighted. In brackets p-values: {TEST}, Holm-corrected "
        f"within the setting; {DEPENDENT}. †: p ≥ 0.05."
    )
    if any(test.opposed for column in tests.values() for test in column.values()):
        text += " By ranks: where most clients lose a little and a few gain much, or the reverse."
    rows = tuple(
        (Cell(row), *(_cell(results, (row, column), tests[column].get(row)) for column in results.columns))
        for row in results.rows
    )
    if any(cell.value is None for row in rows for cell in row):
        text += f" {MISSING}: no records of the same seed and split."
    return Table(
        title=f"Difference from {reference}",
        caption=caption(results, text, spread=False),
        heads=heads("method", *results.columns),
        rows=rows,
        notes=notes(results),
        fields=_FIELDS,
        line="column",
    )


def _cell(results: Results, place: Place, test: Comparison | None) -> Cell:
    """A difference; the word ``reference`` where the row is the reference itself."""
    row, column = place
    reference = results.study.reference
    if test is None and row == reference and results.at(*place):
        return Cell("reference")
    if test is None:
        other = "no record" if not results.at(reference, column) else "no seed and split in common with that"
        return Cell(reason=reason(results, place) or f"{other} of {reference}")
    p = Cell(test.p_holm, "p")
    if test.opposed:
        p = Cell(f"{p_value(test.p_holm)}, {'better' if test.direction > 0 else 'worse'} by ranks")
    return Cell(
        test.difference,
        "signed",
        beside=p,
        tied=not test.significant,
        short=lacks_seeds(results, *place),
        facts={"setting": column, "reference": reference, "method": row, **facts_of(test)},
    )
