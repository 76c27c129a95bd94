"""LaTeX, for the packages booktabs and graphicx."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pfl_benchmark.render.forms import printed
from pfl_benchmark.render.registry import register
from pfl_benchmark.render.table import MISSING, Cell, Table, plain

_TEX = {
    **{letter: f"\\{letter}" for letter in "&%_#${}"},
    **{letter: f"{{{letter}}}" for letter in "[]*"},  # else an option of the line break before them
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"},
    **{"α": r"$\alpha$", "β": r"$\beta$", "ε": r"$\varepsilon$", "λ": r"$\lambda$", "ω": r"$\omega$"},
    **{"Σ": r"$\Sigma$", "²": "$^2$", "±": r"$\pm$", "≥": r"$\geq$", "≤": r"$\leq$", "<": "$<$", ">": "$>$"},
    **{"−": "$-$", "–": "--", "†": r"$^{\dagger}$", "‡": r"$^{\ddagger}$", "§": r"$^{\S}$"},
}


@register("tex", "LaTeX")
def latex(table: Table) -> str:
    """A ``table`` environment no wider than the text; the paper's figures have columns of their own."""
    double = table.has_paper
    kinds = ["l" if head.words or not index else "r" * (1 + double) for index, head in enumerate(table.heads)]
    heads = _double_heads(table) if double else [_line([_tex(head.text) for head in table.heads])]
    body = []
    for index, row in enumerate(table.rows):
        if index in table.rules:
            body.append(r"\midrule")
        above = [cell.value for cell in table.rows[index - 1]] if index else [None] * len(row)
        cells = [
            [""] if cell.again or (head.once and cell.value == before) else _cells(cell, double, head.words)
            for head, cell, before in zip(table.heads, row, above, strict=True)
        ]
        body.append(_line([text for texts in cells for text in texts]))
    caption = _tex(" ".join([table.caption, *(f"{note}." for note in table.notes)]))
    return "\n".join(
        [
            "% packages: booktabs, graphicx",
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{_tex(table.title)}. {caption}}}",
            rf"\label{{tab:{table.name}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{''.join(kinds)}}}",
            r"\toprule",
            *heads,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            "}",
            r"\end{table}",
            "",
        ]
    )


def _double_heads(table: Table) -> list[str]:
    """Two lines of heads, the columns over ours and the paper's, and the rules between them."""
    above, rules = [], []
    below: list[str] = []
    for head in table.heads:
        column = len(below) + 1
        if head.words:
            above.append("")
            below.append(_tex(head.text))
            continue
        above.append(rf"\multicolumn{{2}}{{c}}{{{_tex(head.text)}}}")
        rules.append(rf"\cmidrule(lr){{{column}-{column + 1}}}")
        below += ["ours", "paper"]
    return [_line(above), " ".join(rules), _line(below)]


def _cells(cell: Cell, double: bool, words: bool) -> list[str]:
    """What a cell prints; a figure where the paper's stand beside ours, also that."""
    text = _tex(cell.text)
    text = rf"\textbf{{{text}}}" if cell.best else text
    text += rf" {{\scriptsize $\pm$ {cell.around}}}" if cell.around else ""
    text += _tex(cell.marks)
    text += f" ({_tex(plain(cell.beside))})" if cell.beside else ""
    if not double or words:
        return [text]
    return [text, _tex(MISSING if cell.paper is None else printed(cell.paper, cell.form or "percent"))]


def _line(cells: Sequence[str]) -> str:
    return re.sub(" +", " ", rf"{' & '.join(cells)} \\")


def _tex(text: str) -> str:
    """Plain text as TeX."""
    return "".join(_TEX.get(letter, letter) for letter in text)
