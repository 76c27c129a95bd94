"""The best round on test data beside the last one, and how much of the order of methods each choice keeps."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import numpy as np
import pandas as pd

from pfl_benchmark.present.tables.captions import caption, notes, reason, sampled_in
from pfl_benchmark.present.tables.places import cells_of, heads, scaled
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.table import MISSING, Cell, Plain, Table
from pfl_benchmark.studies.grid import Column
from pfl_benchmark.studies.results import Results
from pfl_benchmark.studies.statistics import DIGITS, ranked

Scores = Mapping[str, float]  # by method
_ORDER = ("pairs in the same order", "methods at the same rank", "largest move", "first stays first")


def best_of(record: Record) -> float:
    """Test accuracy of the best evaluated round, as others report it: chosen on test data."""
    return max(line["accuracy"] for line in record.rounds if "accuracy" in line)


def last_of(record: Record) -> float:
    """Test accuracy after the last round."""
    return float(record.summary["accuracy"])


def best_and_last(results: Results) -> Table:
    """Methods × settings: accuracy of the best and of the last round, each with its rank."""
    figures = {
        "best": cells_of(results, lambda row, column: [*map(best_of, results.at(row, column))], True),
        "last": cells_of(results, results.values, True),
    }
    ranks = {
        (kind, column): _ranked({row: cells[row, column].value for row in results.rows})
        for kind, cells in figures.items()
        for column in results.columns
    }
    rows = []
    for row in results.rows:
        cells = [Cell(row)]
        for column, (kind, found) in itertools.product(results.columns, figures.items()):
            cell, rank = found[row, column], ranks[kind, column].get(row)
            facts: dict[str, Plain] = {**cell.facts, "round": kind, "rank": rank}
            why = reason(results, (row, column))
            cells += [dataclasses.replace(cell, facts=facts), Cell(rank, "rank", reason=why)]
        rows.append(tuple(cells))
    named = [f"{column}, {kind} round" for column in results.columns for kind in figures]
    text = (
        "Test accuracy in % of the round that is best on test data, as leaderboards report it, and of the "
        "last round, with ranks by the means over seeds. Methods that fine-tune clients after the last round "
        "are evaluated on the way without it. Bold: best of its column."
    )
    if not all(results.at(row, column) for row in results.rows for column in results.columns):
        text += f" {MISSING}: no record."
    return Table(
        title="Best round on test data and last round",
        caption=caption(results, text, sampled_in(results)),
        heads=heads("method", *(text for name in named for text in (name, "rank"))),
        rows=tuple(rows),
        notes=notes(results),
        fields=("setting", "method", "round", "mean", "std", "seeds", "best", "rank"),
        line="cell",
    )


def order_kept(results: Results) -> Table:
    """How much of the order of methods stays with another seed, the last round, or rates of their own."""
    rows = []
    for column in results.grid.columns:
        best, last = (_by_seed(results, column.title, of) for of in (best_of, last_of))
        plain = _basis(results, column)
        if plain:
            former = _by_seed(results, plain, last_of)
            changes = {"learning rates chosen on a validation split": _same_seeds(former, last)}
        else:
            changes = {
                "another seed, best rounds": [*itertools.combinations(best.values(), 2)],
                "another seed, last rounds": [*itertools.combinations(last.values(), 2)],
                "last rounds instead of best": _same_seeds(best, last),
            }
        rows += [_line(plain or column.title, what, pairs) for what, pairs in changes.items()]
    text = (
        "What becomes of the order of methods by test accuracy. Pairs in the same order: share in % of all "
        "pairs of methods, half of those that tie in one of the two orders. Methods at the same rank: mean "
        "number of methods. Largest move: in ranks, the largest found. First stays first: share in % of the "
        "comparisons. Compared are two seeds, or the two choices at the same seed; methods without a record "
        "of both are left out."
    )
    return Table(
        title="What of the order stays",
        caption=caption(results, text, sampled_in(results), spread=False),
        heads=heads("setting", "change", "comparisons", "methods", *_ORDER),
        rows=tuple(rows),
        fields=("setting", "change", "comparisons", "methods", "pairs", "same_rank", "largest_move", "first"),
    )


def _basis(results: Results, column: Column) -> str:
    """The column of the same group whose rows another one replaces; empty where it replaces none."""
    same = (other.title for other in results.grid.columns if not other.chosen and other.group == column.group)
    return next(same, "") if column.chosen else ""


def _by_seed(results: Results, column: str, of: Callable[[Record], float]) -> dict[int, Scores]:
    """The figures of a column's methods, by seed."""
    found: dict[int, dict[str, float]] = {}
    for row in results.rows:
        for seed, record in results.records.get((row, column), {}).items():
            found.setdefault(seed, {})[row] = of(record)
    return {seed: found[seed] for seed in sorted(found)}


def _same_seeds(first: Mapping[int, Scores], second: Mapping[int, Scores]) -> list[tuple[Scores, Scores]]:
    return [(first[seed], second[seed]) for seed in first if seed in second]


def _line(column: str, change: str, pairs: Sequence[tuple[Scores, Scores]]) -> tuple[Cell, ...]:
    """A line of `order_kept`: means over comparisons."""
    pairs = [({m: a[m] for m in a if m in b}, {m: b[m] for m in a if m in b}) for a, b in pairs]
    pairs = [pair for pair in pairs if len(pair[0]) > 1]
    name: dict[str, Plain] = {"setting": column, "change": change, "comparisons": len(pairs)}
    if not pairs:
        why = "no two orders to compare"
        return (Cell(column, facts=name), Cell(change), *(Cell(reason=why) for _ in range(2 + len(_ORDER))))
    ranks = [(_ranked(a), _ranked(b)) for a, b in pairs]
    moves = [[abs(a[m] - b[m]) for m in a] for a, b in ranks]
    methods = max(map(len, moves))
    order = fmean(_concordant(a, b) for a, b in pairs)
    same = fmean(sum(move < 0.5 for move in own) for own in moves)
    first = fmean(min(a, key=a.__getitem__) == min(b, key=b.__getitem__) for a, b in ranks)
    facts = {
        **name, "methods": methods, "pairs": scaled(order), "same_rank": same,
        "largest_move": max(map(max, moves)), "first": scaled(first),
    }  # fmt: skip
    return (
        Cell(column, facts=facts),
        Cell(change),
        Cell(len(pairs), "d"),
        Cell(methods, "d"),
        Cell(order, "percent"),
        Cell(same, "rank"),
        Cell(max(map(max, moves)), "rank"),
        Cell(first, "percent"),
    )


def _ranked(values: Mapping[str, object]) -> dict[str, float]:
    """1 is the best; equal ones share the mean of their ranks; without those that have no figure."""
    known = pd.Series({name: value for name, value in values.items() if value is not None}, dtype=float)
    return {str(name): float(rank) for name, rank in ranked(known).items()}


def _concordant(a: Scores, b: Scores) -> float:
    """Share of pairs of methods that have the same order in both; half of those that tie in one alone."""
    found = [{name: round(value, DIGITS) for name, value in scores.items()} for scores in (a, b)]
    signs = [[np.sign(one[m] - one[n]) for one in found] for m, n in itertools.combinations(a, 2)]
    return fmean(1.0 if x == y else 0.5 * (0 in (x, y)) for x, y in signs)
