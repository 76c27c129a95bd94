"""Tables as values: rows × columns of cells that say what they are, not how they are printed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pfl_benchmark.render.forms import printed

MISSING = "–"  # where there is nothing, never a number

Plain = str | int | float | bool | None


@dataclass(frozen=True)
class Cell:
    """A number or words, and what belongs to it.

    Attributes:
        value: None: there is nothing. Empty words: nothing belongs there.
        form: how the number is printed (`render.forms.printed`).
        deviation: sample standard deviation over seeds, printed as `value` is.
        paper: the paper's figure, also where `value` is None; printed with ``value - paper`` beside it.
        beside: what stands in brackets behind it.
        best: the best of those that it is compared with.
        tied: not significantly worse than what it is tested against (†).
        short: over fewer seeds than others of its setting (‡).
        diverged: of training that ended far above the loss of guessing, or was stopped with some seed (§).
        again: the same as above, not to be repeated unless rows are sorted.
        reason: why there is nothing.
        facts: numbers for programs by the names of their columns, unrounded; NaN becomes None.
    """

    value: str | int | float | None = None
    form: str = ""
    deviation: float | None = None
    paper: float | None = None
    beside: Cell | None = None
    best: bool = False
    tied: bool = False
    short: bool = False
    diverged: bool = False
    again: bool = False
    reason: str = ""
    facts: Mapping[str, Plain] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _plain(self.value))
        object.__setattr__(self, "facts", {name: _plain(value) for name, value in self.facts.items()})

    @property
    def text(self) -> str:
        """The value alone, as printed."""
        return MISSING if self.value is None else printed(self.value, self.form)

    @property
    def around(self) -> str:
        """The deviation as printed; empty if there is none."""
        return "" if self.deviation is None else printed(self.deviation, self.form)

    @property
    def marks(self) -> str:
        """†, ‡ and §, as far as they hold."""
        return "†" * self.tied + "‡" * self.short + "§" * self.diverged

    @property
    def gap(self) -> float | None:
        """`value` minus the paper's figure."""
        return None if isinstance(self.value, str | None) or self.paper is None else self.value - self.paper


@dataclass(frozen=True)
class Head:
    """The head of a column.

    Attributes:
        words: it holds words, not figures.
        once: LaTeX prints what repeats the row above only once.
    """

    text: str
    words: bool = False
    once: bool = False


@dataclass(frozen=True)
class Table:
    """A finished table.

    Attributes:
        caption: what it is, how its figures were chosen and weighted, over which seeds.
        rows: a cell for each column; the first names the row.
        name: of its files.
        notes: what is peculiar to single cells.
        rules: rows before which a rule is drawn.
        fields: names of the facts, in order; empty: those that the cells have.
        line: what makes a line of facts: a ``row``; a ``cell``, row by row; or a cell, ``column`` by column.

    Raises:
        ValueError: a row has not as many cells as there are columns.
    """

    title: str
    caption: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]
    name: str = ""
    notes: tuple[str, ...] = ()
    rules: tuple[int, ...] = ()
    fields: tuple[str, ...] = ()
    line: Literal["row", "cell", "column"] = "row"

    def __post_init__(self) -> None:
        if any(len(row) != len(self.heads) for row in self.rows):
            raise ValueError(f"a row of {self.title!r} has not {len(self.heads)} cells")

    @property
    def cells(self) -> list[Cell]:
        """All cells, row by row."""
        return [cell for row in self.rows for cell in row]

    @property
    def has_paper(self) -> bool:
        """Whether the paper's figures stand beside ours."""
        return any(cell.paper is not None for cell in self.cells)

    def facts(self) -> tuple[tuple[str, ...], list[dict[str, Plain]]]:
        """Names and lines of all facts; rows or cells without any are left out."""
        groups: Iterable[tuple[Cell, ...]] = self.rows
        if self.line != "row":
            ordered = self.rows if self.line == "cell" else zip(*self.rows, strict=True)
            groups = ((cell,) for group in ordered for cell in group)
        lines = [{name: fact for cell in group for name, fact in cell.facts.items()} for group in groups]
        lines = [line for line in lines if line]
        return self.fields or tuple(dict.fromkeys(name for line in lines for name in line)), lines


def plain(cell: Cell) -> str:
    """A cell as text without markup: ``88.82 ± 0.21 † (86.58, +2.24)``."""
    text = f"{cell.text} ± {cell.around}" if cell.around else cell.text
    text = " ".join([text, *cell.marks])
    beside = in_brackets(cell)
    return f"{text} ({beside})" if beside else text


def in_brackets(cell: Cell) -> str:
    """What stands in brackets behind a cell, as printed; empty if there is nothing."""
    if cell.paper is not None and cell.gap is not None:
        return f"{printed(cell.paper, cell.form)}, {printed(cell.gap, 'signed')}"
    return plain(cell.beside) if cell.beside else ""


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value  # a scalar of NumPy
    return None if isinstance(value, float) and math.isnan(value) else value
