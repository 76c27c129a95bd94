"""Finished tables as frames, for tests that look cells up."""

import pandas as pd

from pfl_benchmark.render.formats.csv_file import facts_frame
from pfl_benchmark.render.table import Cell, Table, plain

__all__ = ["facts_frame", "printed_frame"]


def printed_frame(table: Table) -> pd.DataFrame:
    """Every cell as text, the best between stars."""
    rows = [[_text(cell) for cell in row] for row in table.rows]
    return pd.DataFrame(rows, columns=[head.text for head in table.heads], dtype=str)


def _text(cell: Cell) -> str:
    value = f"{cell.text} ± {cell.around}" if cell.around else cell.text
    return plain(cell).replace(value, f"**{value}**", 1) if cell.best else plain(cell)
