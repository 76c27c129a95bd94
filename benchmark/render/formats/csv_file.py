"""CSV: plain numbers for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pfl_benchmark.render.forms import no_formula
from pfl_benchmark.render.registry import register
from pfl_benchmark.render.table import Table

if TYPE_CHECKING:
    import pandas as pd


@register("csv", "CSV")
def comma_separated(table: Table) -> str:
    """The facts with six significant digits, under a line of their names."""
    frame = facts_frame(table).map(lambda value: no_formula(value) if isinstance(value, str) else value)
    return frame.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def facts_frame(table: Table) -> pd.DataFrame:
    """The facts of a table, unrounded."""
    import pandas as pd

    names, lines = table.facts()
    return pd.DataFrame(lines, columns=list(names))
