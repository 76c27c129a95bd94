"""What tables and figures ask of a grid of one's own, looked at before its first run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from pfl_benchmark.errors import UserError, unknown
from pfl_benchmark.present import figures, tables
from pfl_benchmark.studies.grid import Grid, Study
from pfl_benchmark.studies.own_grid import OwnGrid
from pfl_benchmark.studies.papers import makers


def refuse_impossible(own: OwnGrid) -> None:
    """Raise UserError for a table or a figure that there is none of, or that cannot be made of this grid."""
    titles = [row.title for row in own.grid.variants]
    for key, title in (("reference", own.study.reference), ("highlight", own.study.highlight)):
        if title and title not in titles:
            raise unknown(f"row ({key})", title, titles)
    for kind, known, names in (
        ("table", tables.GENERAL, own.study.tables),
        ("figure", figures.GENERAL, own.study.figures),
    ):
        every = {*known, *makers(f"{kind}s")}
        for name in names:
            if name not in every:
                raise unknown(kind, name, sorted(every))
            if problem := _ASKED.get(name, _nothing)(own.study, own.grid):
                raise UserError(f"{kind} '{name}': {problem}")


def _nothing(study: Study, grid: Grid) -> str:
    return ""


def _reference(study: Study, grid: Grid) -> str:
    titles = ", ".join(row.title for row in grid.variants)
    return "" if study.reference else f"there is no reference; expected the title of a row: {titles}"


def _default_rate(study: Study, grid: Grid) -> str:
    if any("lr" not in column.changes for column in grid.columns):
        return ""
    return "all columns change lr; vary it such that one value is the setting's own"


def _one_setting(study: Study, grid: Grid) -> str:
    return "" if len(grid.columns) == 1 else f"the grid has {len(grid.columns)} columns; give one setting"


def _one_of_equal_rounds(study: Study, grid: Grid) -> str:
    plain = Counter(column.group for column in grid.columns if column.budget == "rounds")
    if plain and all(plain[column.group] == 1 for column in grid.columns):
        return ""
    return "expected a column of equal rounds, and others of other budgets: vary budget alone"


def _many_settings(study: Study, grid: Grid) -> str:
    return "" if len(grid.columns) >= tables.LEAST else f"expected {tables.LEAST} settings or more"


def _axis(study: Study, grid: Grid) -> str:
    if len({column.x for column in grid.columns}) > 1 or any(row.x is not None for row in grid.variants):
        return ""
    return "no row and no column has a place on its axis; vary a number, or give x"


def _claims(study: Study, grid: Grid) -> str:
    return "it is of a paper's study of its claims; leave it out"


_ASKED: Mapping[str, Callable[[Study, Grid], str]] = {
    "claims": _claims,
    "differences": _reference,
    "over-settings": _many_settings,
    "rates": _default_rate,
    "sweep": _axis,
    "points": _one_setting,
    "budgets-bytes": _one_of_equal_rounds,
    "budgets-samples": _one_of_equal_rounds,
}
