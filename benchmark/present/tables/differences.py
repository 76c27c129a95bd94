"""By how much every method is better or worse than the one that a study names."""

from __future__ import annotations

from benchmark.present.tables.captions import DEPENDENT, SELECTION, TEST, caption, notes, reason
from benchmark.present.tables.places import heads
from benchmark.render.table import MISSING, Cell, Plain, Table
from benchmark.studies.results import Place, Results
from benchmark.studies.statistics import Comparison, compare_with_best

__all__ = ["differences"]

_FIELDS = ("setting", "reference", "method", "pairs", "mean_difference", "standard_error", "p", "p_holm")


def differences(results: Results) -> Table:
    """Every row minus the study's reference, on the clients and seeds that both have."""
    reference, tests = results.study.reference, {}
    for column in results.columns:
        samples = {row: found for row in results.rows if (found := results.samples(row, column))}
        tests[column] = compare_with_best(samples, reference) if reference in samples else {}
    text = (
        f"Percentage points of test accuracy {SELECTION} by which a method is above {reference}: mean over "
        f"the clients and seeds that both have, unweighted. In brackets p-values: {TEST}, Holm-corrected "
        f"within the setting; {DEPENDENT}. †: p ≥ 0.05."
    )
    rows = tuple(
        (Cell(row), *(_cell(results, (row, column), tests[column].get(row)) for column in results.columns))
        for row in results.rows
    )
    if any(cell.value is None for row in rows for cell in row):
        text += f" {MISSING}: no record."
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
        return Cell(reason=reason(results, place) or f"no record of {reference} to compare with")
    facts: dict[str, Plain] = {
        "setting": column,
        "reference": reference,
        "method": row,
        "pairs": test.pairs,
        "mean_difference": -100 * test.difference,
        "standard_error": 100 * test.standard_error,
        "p": test.p,
        "p_holm": test.p_holm,
    }
    return Cell(
        -test.difference, "signed", beside=Cell(test.p_holm, "p"), tied=not test.significant, facts=facts
    )
