"""The common form of tables of methods × settings: one figure a place, over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pfl_benchmark.present.tables.captions import caption, lacks_seeds, notes, reason
from pfl_benchmark.render.forms import percent
from pfl_benchmark.render.table import MISSING, Cell, Head, Plain, Table
from pfl_benchmark.studies.results import Place, Results
from pfl_benchmark.studies.statistics import Comparison, mean_and_std

Papers = Mapping[Place, float]  # the paper's figures

_FIELDS = ("setting", "method", "mean", "std", "seeds", "paper", "difference", "best", "p_holm")


def cells_of(
    results: Results,
    values: Callable[[str, str], Sequence[float]],
    larger_is_better: bool | None = None,
    papers: Papers | None = None,
    tested: bool = False,
) -> dict[Place, Cell]:
    """The cells of all places, those without values among them.

    Args:
        values: those of a row and a column, one a seed, shares in 0..1.
        larger_is_better: what the best of a setting is; None: nothing is.
        papers: the paper's figures, to stand beside.
        tested: mark what is not significantly worse in test accuracy than the best.
    """
    cells: dict[Place, Cell] = {}
    for column in results.columns:
        found = {row: some for row in results.rows if (some := values(row, column))}
        diverged = {row for row in found if results.unsound(row, column)}
        moments = {row: mean_and_std(some) for row, some in found.items()}
        judged = larger_is_better is not None and _is_judged(results, column)
        levels = {row: _as_printed(results.level(row, column, some) or 0.0) for row, some in found.items()}
        best = (max if larger_is_better else min)(
            (level for row, level in levels.items() if row not in diverged), default=None
        )
        comparisons = results.comparisons[column] if tested else {}
        for row in results.rows:
            paper = papers.get((row, column)) if papers else None
            facts: dict[str, Plain] = {"setting": column, "method": row, "seeds": 0, "paper": scaled(paper)}
            if row not in found:
                why = reason(results, (row, column)) or "its record does not tell"
                cells[row, column] = Cell(form="percent", paper=paper, reason=why, facts=facts)
                continue
            mean, std = moments[row]
            is_best = judged and row not in diverged and levels[row] == best
            compared = comparisons.get(row)
            level = compared is not None and not (compared.significant and compared.direction < 0)
            facts |= {
                "mean": scaled(mean),
                "std": scaled(std),
                "seeds": len(found[row]),
                "difference": None if paper is None else scaled(mean - paper),
                "best": is_best,
                "p_holm": compared.p_holm if compared else None,
            }
            cells[row, column] = Cell(
                mean,
                "percent",
                deviation=std,
                paper=paper,
                best=is_best,
                tied=judged and level and not is_best and row not in diverged,
                short=lacks_seeds(results, row, column),
                diverged=row in diverged,
                facts=facts,
            )
    return cells


def scaled(share: float | None) -> float | None:
    """A share in percent, unrounded."""
    return None if share is None else 100 * share


def _as_printed(share: float) -> float:
    return float(percent(share))


def _is_judged(results: Results, column: str) -> bool:
    """Whether a setting has records of more than half of its methods: the best of a few says little."""
    found = [bool(results.at(row, column)) for row in results.rows if (row, column) in results.configs]
    return 2 * sum(found) > len(found)


def bold(what: str, line: str, results: Results) -> str:
    """The caption's sentence on bold figures."""
    if any(results.differs(column) for column in results.begun):
        line += ", by the seeds that all of its methods have"
    if all(_is_judged(results, column) for column in results.begun):
        return f"Bold: {what} of its {line}."
    return f"Bold: {what} of its {line}, where more than half of the methods have a record."


def places_table(results: Results, title: str, cells: Mapping[Place, Cell], text: str) -> Table:
    """A table of all places, settings as columns or rows; `text`: the caption before seeds and protocol."""
    if not all(results.at(*place) for place in cells):
        text += f" {MISSING}: no record."
    if by_setting := results.study.settings_as_rows:
        names, others = results.columns, results.rows
        rows = [[Cell(name), *(cells[row, name] for row in others)] for name in names]
    else:
        names, others = results.rows, results.columns
        rows = [[Cell(name), *(cells[name, column] for column in others)] for name in names]
    return Table(
        title=title,
        caption=caption(results, text),
        heads=heads("setting" if by_setting else "method", *others),
        rows=tuple(map(tuple, rows)),
        notes=notes(results),
        fields=_FIELDS,
        line="cell" if by_setting else "column",
    )


def lines_table(
    results: Results,
    columns: tuple[Head, ...],
    rows: Sequence[Sequence[Cell]],
    text: str,
    rules: tuple[int, ...] = (),
) -> Table:
    """A table of lines under the study's title; `text` is the caption before seeds and protocol."""
    if any(cell.value is None for row in rows for cell in row):
        text += f" {MISSING}: no record."
    return Table(
        title=results.study.title,
        caption=caption(results, text),
        heads=columns,
        rows=tuple(map(tuple, rows)),
        notes=notes(results),
        rules=rules,
    )


def facts_of(test: Comparison | None) -> dict[str, Plain]:
    """A test in numbers, differences in percentage points; empty without one."""
    if test is None:
        return {}
    return {
        "pairs": test.pairs,
        "difference": 100 * test.difference,
        "standard_error": 100 * test.standard_error,
        "direction": test.direction,
        "p": test.p,
        "p_holm": test.p_holm,
    }


def rules_between(keys: Sequence[object]) -> tuple[int, ...]:
    """The lines above which a rule stands: those whose key is another than that of the line before."""
    return tuple(place for place in range(1, len(keys)) if keys[place] != keys[place - 1])


def heads(label: str, *figures: str) -> tuple[Head, ...]:
    """A column of names, then columns of figures."""
    return (Head(label, words=True), *map(Head, figures))
