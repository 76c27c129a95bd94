"""`Table`: numbers for programs, text for people, and LaTeX for papers, of one and the same table."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pandas as pd

__all__ = ["MISSING", "WORDS", "Table", "p_value", "percent", "signed", "tex"]

MISSING = "–"  # where there is no record, never a number

# Columns of words, not of figures.
WORDS = ("setting", "method", "choice", "claim", "verdict", "personal", "point")

_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "ε": r"$\varepsilon$",
    "λ": r"$\lambda$",
    "ω": r"$\omega$",
    "Σ": r"$\Sigma$",
    "²": r"$^2$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "−": "$-$",
    "–": "--",
    "†": r"$^{\dagger}$",
    "‡": r"$^{\ddagger}$",
    "<": "$<$",
}


@dataclass(frozen=True)
class Table:
    """A finished table.

    Attributes:
        name: of its files.
        caption: what it is, how its figures were chosen and weighted, over which seeds.
        legend: what else has to be said of `shown` alone.
        notes: what is peculiar to single cells.
        data: one row a cell, plain numbers; what the CSV holds.
        shown: as printed, text in every cell; Markdown marks the best with ``**``.
        latex: as `shown` with TeX in every cell; its columns may have two levels.
        rules: rows of `latex` before which a rule is drawn.
    """

    name: str
    title: str
    caption: str
    notes: tuple[str, ...]
    data: pd.DataFrame
    shown: pd.DataFrame
    latex: pd.DataFrame
    rules: tuple[int, ...] = ()
    legend: str = ""

    def to_markdown(self) -> str:
        """Heading, table, caption and notes."""
        align = ["left" if name in WORDS else "right" for name in self.shown.columns]
        table = self.shown.to_markdown(index=False, disable_numparse=True, colalign=align)
        notes = "".join(f"\n- {note}" for note in self.notes)
        caption = f"{self.caption} {self.legend}".rstrip()
        return f"## {self.title}\n\n{table}\n\n{caption}\n{notes}".rstrip() + "\n"

    def to_csv(self) -> str:
        """The numbers, unrounded, with a line of column names."""
        return self.data.to_csv(index=False, lineterminator="\n", float_format="%.6g")

    def to_latex(self) -> str:
        """A ``table`` environment for the packages booktabs and graphicx, no wider than the text."""
        heads = [str(name) for name in self.latex.columns.get_level_values(-1)]
        text = self.latex.to_latex(
            index=False,
            escape=False,
            column_format="l" + "".join("l" if name in WORDS else "r" for name in heads[1:]),
            multicolumn_format="c",
        )
        lines = [re.sub(r" +", " ", line).rstrip() for line in text.splitlines()]
        lines = _with_rules(lines, self.latex.columns, self.rules)
        caption = tex(" ".join([self.caption, *(f"{note}." for note in self.notes)]))
        return "\n".join(
            [
                "% packages: booktabs, graphicx",
                r"\begin{table}[t]",
                r"\centering",
                rf"\caption{{{tex(self.title)}. {caption}}}",
                rf"\label{{tab:{self.name}}}",
                r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
                *lines,
                "}",
                r"\end{table}",
                "",
            ]
        )


def _with_rules(lines: list[str], columns: pd.Index, rules: tuple[int, ...]) -> list[str]:
    """Add the rules that pandas does not draw: under joint headings, and between groups of rows."""
    body = lines.index(r"\midrule") + 1
    for row in sorted(rules, reverse=True):
        lines.insert(body + row, r"\midrule")
    if columns.nlevels > 1:
        tops = [str(top) for top in columns.get_level_values(0)]
        spans = [
            rf"\cmidrule(lr){{{start + 1}-{start + tops.count(top)}}}"
            for start, top in enumerate(tops)
            if tops.count(top) > 1 and tops.index(top) == start
        ]
        lines.insert(lines.index(r"\toprule") + 2, " ".join(spans))
    return lines


def percent(share: float) -> str:
    """``81.25`` for 0.8125."""
    return f"{100 * share:.2f}"


def signed(share: float) -> str:
    """``+0.25`` or ``−0.25`` in percent."""
    text = percent(abs(share))
    return ("−" if share < 0 and float(text) else "+") + text


def p_value(p: float) -> str:
    """``0.014``, or ``< 0.001``."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def tex(text: str) -> str:
    """Plain text as TeX."""
    return "".join(_TEX.get(letter, letter) for letter in text)
