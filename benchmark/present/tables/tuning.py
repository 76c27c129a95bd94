"""Tables of tuning: every method at points of its own and at learning rates, against its default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pfl_benchmark.present.tables.captions import SELECTION, TEST, reason
from pfl_benchmark.present.tables.places import facts_of, heads, lines_table, rules_between, scaled
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.table import Cell, Head, Table
from pfl_benchmark.studies.results import Place, Results
from pfl_benchmark.studies.statistics import Comparison, compare_with

_COST = "samples trained on"


def tuning(results: Results) -> Table:
    """Validation accuracy of every point, the best of each method marked, and what the search has cost."""
    algos = {variant.title: (variant.algo, variant.ablation) for variant in results.grid.variants}
    rows = []
    for title, algo in algos.items():
        own = [other for other in algos if algos[other] == algo]
        figures = (
            _figure(results, (title, column), column, _best_finished(results, own, column))
            for column in results.columns
        )
        records = [record for column in results.columns for record in results.at(title, column)]
        runs = Cell(len(records) or None, "d", facts={"runs": len(records)})
        rows.append([Cell(title, facts={"method": title}), *figures, runs, _cost(records)])
    words = f"{_accuracy(results)} Bold: best point of a method"
    words += "." if results.study.prints else "; the first one is its default."
    if len(set(Counter(algos.values()).values())) == 1:
        words += " Every method is tried at equally many points."
    return lines_table(results, heads("method", *results.columns, "runs", _COST), rows, words)


def rates(results: Results) -> Table:
    """Validation accuracy by learning rate, tested against each method's default, and the search's cost."""
    default = next(column.title for column in results.grid.columns if "lr" not in column.changes)
    rows = []
    for method in [row for row in results.rows if row in results.tried] or results.rows:
        best = _best(results, [(method, column) for column in results.columns])
        samples = {column: results.samples(method, column) for column in results.columns}
        tests = compare_with(samples, default)
        figures = (
            _figure(results, (method, column), column, best, tests.get(column), f", {column}")
            for column in results.columns
        )
        cost = _cost([r for column in results.columns for r in results.at(method, column)])
        rows.append([Cell(method, facts={"method": method}), *figures, cost])
    words = (
        f"{_accuracy(results)} Bold: a method's best learning rate, where all have a record (of the same "
        f"seeds). †: not significantly different from the method's default, {default} (p ≥ 0.05; "
        f"{TEST}, Holm-corrected within the method). All else is its default."
    )
    return lines_table(results, heads("method", *results.columns, _COST), rows, words)


def points(results: Results) -> Table:
    """Validation accuracy of method-specific hyper-parameters, tested against the default, and the cost."""
    (column,) = results.columns
    titles: dict[str, list[str]] = {}
    for variant in results.grid.variants:
        titles.setdefault(variant.algo, []).append(variant.title)
    rows: list[list[Cell]] = []
    for own in [own for own in titles.values() if results.tried & {*own}] or titles.values():
        default = own[0]
        best = _best(results, [(title, column) for title in own])
        tests = compare_with({title: results.samples(title, column) for title in own}, default)
        for title in own:
            point = title.removeprefix(f"{default}, ") if title != default else "default"
            test, nothing = tests.get(title), Cell("") if title == default else None
            error = Cell(test.standard_error, "percent") if test else None
            gain = test.difference if test else None
            p = test.p_holm if test else None
            rows.append(
                [
                    Cell(default, facts={"method": default, "point": point}),
                    Cell(point),
                    _figure(results, (title, column), "accuracy", best),
                    nothing or Cell(gain, "signed", beside=error, facts=facts_of(test)),
                    nothing or Cell(p, "p"),
                    _cost(results.at(title, column)),
                ]
            )
    words = (
        f"{_accuracy(results)} Bold: best point of a method, where all have a record (of the same seeds). "
        "Against default: mean difference over clients and the seeds that both have, in brackets its "
        f"standard error (clients taken as independent). p: {TEST}, Holm-corrected for those points of "
        "the method that have a record."
    )
    columns = (Head("method", words=True), *heads("point", "accuracy", "against default", "p", _COST))
    return lines_table(results, columns, rows, words, rules_between([row[0].value for row in rows]))


def _accuracy(results: Results) -> str:
    """The caption's first sentence: what is looked at."""
    if all(config.validation for config in results.configs.values()):
        return f"Accuracy in % {SELECTION}; test data are not looked at."
    return f"Test accuracy in % {SELECTION}."


def _best_finished(results: Results, rows: Sequence[str], column: str) -> float | None:
    """The largest mean among rows that have most seeds and did not diverge: only these can be selected."""
    most = max(len(results.at(row, column)) for row in rows)
    sound = [row for row in rows if len(results.at(row, column)) == most and not results.unsound(row, column)]
    return max((mean for row in sound if (mean := results.mean(row, column)) is not None), default=None)


def _best(results: Results, places: Sequence[Place]) -> float | None:
    """The largest mean of the places that did not diverge; None unless all have records of the same seeds."""
    seeds = {tuple(results.records.get(place, ())) for place in places}
    if len(seeds) > 1 or () in seeds:
        return None
    sound = (place for place in places if not results.unsound(*place))
    return max((mean for place in sound if (mean := results.mean(*place)) is not None), default=None)


def _figure(
    results: Results,
    place: Place,
    field: str,
    best: float | None,
    test: Comparison | None = None,
    of: str = "",
) -> Cell:
    """The accuracy of a place, marked where it is `best` and where its test says that nothing is sure.

    Args:
        field: name of the accuracy among the facts.
        test: against the default.
        of: what the names of the test's facts end in.
    """
    mean, diverged = results.mean(*place), bool(results.at(*place)) and results.unsound(*place)
    tested = {f"{name}{of}": value for name, value in facts_of(test).items()}
    return Cell(
        mean,
        "percent",
        best=mean is not None and mean == best and not diverged,
        tied=bool(test and not test.significant),
        diverged=diverged,
        reason=reason(results, place),
        facts={field: scaled(mean), **tested},
    )


def _cost(records: Sequence[Record]) -> Cell:
    """All samples that runs have trained on, fine-tuning included."""
    spent = sum(int(r.summary["samples"]) + int(r.summary["adaptation_samples"]) for r in records)
    return Cell(spent if records else None, ",", facts={"samples": spent})
