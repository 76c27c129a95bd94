"""Tables of methods × settings: accuracy with the paper's beside it, tests, ranks, worst clients, spread,
and what choosing the best round by test accuracy would add."""

from __future__ import annotations

from collections.abc import Callable

from pfl_benchmark.present.tables.captions import (
    ACCURACY,
    BEST,
    DEPENDENT,
    SELECTION,
    TIED,
    caption,
    costs,
    reason,
    sampled_in,
)
from pfl_benchmark.present.tables.orders import best_of, last_of
from pfl_benchmark.present.tables.places import Papers, bold, cells_of, facts_of, heads, places_table
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.table import Cell, Plain, Table
from pfl_benchmark.studies.results import Results
from pfl_benchmark.studies.statistics import ranks_by_column
from pfl_benchmark.studies.targets import adapted_at_the_end_alone


def accuracy(results: Results) -> Table:
    """Test accuracy, the paper's figure and the difference beside it."""
    study = results.study
    cells = cells_of(results, results.values, larger_is_better=True, papers=_papers(results), tested=True)
    parts = [
        f"Columns: {study.axis}." if study.axis and not results.grid.columns[0].group else "",
        ACCURACY,
        bold("best", _across(results), results),
    ]
    if any(cell.tied for cell in cells.values()):
        parts.append(TIED)
    parts.append(costs(results))
    return places_table(results, "Test accuracy", cells, " ".join(filter(None, parts)))


def _across(results: Results) -> str:
    """What a setting is in the table."""
    return "row" if results.study.settings_as_rows else "column"


def worst10(results: Results) -> Table:
    """Mean accuracy of the tenth of the clients that fares worst."""
    cells = cells_of(results, _metric(results, "accuracy_worst10"), larger_is_better=True)
    text = f"Mean test accuracy in % of the 10 % of clients that fare worst, {SELECTION}."
    text += f" {bold('best', _across(results), results)}"
    return places_table(results, "Worst 10 % of clients", cells, text)


def spread(results: Results) -> Table:
    """Standard deviation of accuracy over clients."""
    cells = cells_of(results, _metric(results, "accuracy_std"), larger_is_better=False)
    text = f"Standard deviation of test accuracy over clients in percentage points, {SELECTION}."
    text += f" {bold('smallest', _across(results), results)}"
    return places_table(results, "Spread between clients", cells, text)


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
    text = " ".join(filter(None, (text, sampled_in(results))))
    return places_table(results, "What the best round on test data would add", cells, text)


def _gain(record: Record) -> float | None:
    """None where the last round alone is evaluated as the result is: with fine-tuned copies."""
    if adapted_at_the_end_alone(record):
        return None
    return best_of(record) - last_of(record)


def significance(results: Results) -> Table:
    """p-values of the best method of every setting against the others."""
    fields = (
        "setting", "best", "method", "pairs", "difference", "standard_error", "direction", "p", "p_holm",
        "significant",
    )  # fmt: skip
    text = (
        f"Corrected p-values: {BEST}. †: p ≥ 0.05. The pairs are clients' test accuracies, unweighted; "
        f"{DEPENDENT}. The best is chosen by the same figures, which makes p somewhat too small."
    )
    title = results.study.title
    if title.split()[0][1:].islower():  # no abbreviation and no name: small within a sentence
        title = title[0].lower() + title[1:]
    return Table(
        title=f"Significance: {title}",
        caption=caption(results, text),
        heads=heads("method", *results.columns),
        rows=tuple(
            (Cell(row), *(_test(results, row, column) for column in results.columns)) for row in results.rows
        ),
        fields=fields,
        line="column",
    )


def _test(results: Results, row: str, column: str) -> Cell:
    """The test of a place against the best of its setting."""
    found = results.comparisons[column].get(row)
    if found is None:
        best = {other.reference for other in results.comparisons[column].values()}
        return Cell("best") if row in best else Cell(reason=reason(results, (row, column)))
    return Cell(
        found.p_holm,
        "p",
        tied=not found.significant,
        facts={
            "setting": column,
            "best": found.reference,
            "method": row,
            **facts_of(found),
            "significant": found.significant,
        },
    )


def ranks(results: Results) -> Table:
    """Rank of every method in every setting that all have, and the average."""
    found = ranks_by_column(results.means())
    columns = [str(name) for name in found.columns if name != "average"]
    text = "Rank by mean test accuracy, 1 is best; ties share their mean. "
    every = "all methods" if len(found) == len(results.rows) else f"the {len(found)} methods with any record"
    text += f"Only settings that {every} have: {len(columns)} of {len(results.columns)}."
    ranked, rows = found.to_dict("index"), []
    for method in results.rows:
        if method not in ranked:
            rows.append((Cell(method), *(Cell() for _ in found.columns)))
            continue
        line = {str(name): float(rank) for name, rank in ranked[method].items()}
        cells = [Cell(rank, "rank", best=rank == float(found[name].min())) for name, rank in line.items()]
        line["average_rank"] = line.pop("average")
        facts: dict[str, Plain] = {"method": method, **line}
        rows.append((Cell(method, facts=facts), *cells))
    return Table(
        title="Average ranks",
        caption=caption(results, text),
        heads=heads("method", *columns, "average rank"),
        rows=tuple(rows),
        fields=("method", *columns, "average_rank"),
    )


def _metric(results: Results, name: str) -> Callable[[str, str], list[float]]:
    return lambda row, column: results.values(row, column, name)


def _papers(results: Results) -> Papers:
    """The paper's figures, also of places without a record."""
    printed = results.study.paper
    if printed is None:
        return {}
    return {
        (variant.title, column.title): figure
        for column in results.grid.columns
        for variant in results.grid.variants
        if (figure := printed.accuracy(column.paper, variant.printed)) is not None
    }
