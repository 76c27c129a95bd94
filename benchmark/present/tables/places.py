"""The common form of tables of methods × settings: one figure a place, over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from benchmark.present.tables.captions import caption, most_seeds, notes
from benchmark.present.tables.table import MISSING, Table, percent, signed, tex
from benchmark.studies.results import Place, Results
from benchmark.studies.statistics import Comparison, mean_and_std

__all__ = ["Entry", "Papers", "bold", "entries_of", "labelled", "places_table"]

Papers = Mapping[Place, float]  # the paper's figures


@dataclass(frozen=True)
class Entry:
    """One cell of a table; shares in 0..1.

    Attributes:
        best: prints as the best of its setting (of those that `_is_judged`).
        tied: not significantly worse than the best.
        short: has fewer seeds than others of its setting.
    """

    mean: float
    std: float | None
    seeds: int
    paper: float | None
    best: bool
    tied: bool
    short: bool
    comparison: Comparison | None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.paper is None else self.mean - self.paper

    def markdown(self) -> str:
        text = percent(self.mean) + (f" ± {percent(self.std)}" if self.std is not None else "")
        text = f"**{text}**" if self.best else text
        text += " †" * self.tied + " ‡" * self.short
        if self.paper is not None and self.difference is not None:
            text += f" ({percent(self.paper)}, {signed(self.difference)})"
        return text

    def latex(self) -> str:
        text = rf"\textbf{{{percent(self.mean)}}}" if self.best else percent(self.mean)
        text += rf" {{\scriptsize $\pm$ {percent(self.std)}}}" if self.std is not None else ""
        return text + tex("†") * self.tied + tex("‡") * self.short


def entries_of(
    results: Results,
    values: Callable[[str, str], Sequence[float]],
    larger_is_better: bool | None = None,
    papers: Papers | None = None,
    tested: bool = False,
) -> dict[Place, Entry]:
    """The entries of all places that have values.

    Args:
        values: those of a row and a column, one a seed, shares in 0..1.
        larger_is_better: what the best of a setting is; None: nothing is.
        papers: the paper's figures, to stand beside.
        tested: mark what is not significantly worse in test accuracy than the best.
    """
    entries: dict[Place, Entry] = {}
    for column in results.columns:
        found = {row: some for row in results.rows if (some := values(row, column))}
        moments = {row: mean_and_std(some) for row, some in found.items()}
        judged = larger_is_better is not None and _is_judged(results, column)
        best = (max if larger_is_better else min)(
            (_as_printed(mean) for mean, _ in moments.values()), default=None
        )
        comparisons = results.comparisons[column] if tested else {}
        most = most_seeds(results, column)
        for row, (mean, std) in moments.items():
            compared = comparisons.get(row)
            is_best = judged and _as_printed(mean) == best
            entries[row, column] = Entry(
                mean=mean,
                std=std,
                seeds=len(found[row]),
                paper=papers.get((row, column)) if papers else None,
                best=is_best,
                tied=judged and compared is not None and not compared.significant and not is_best,
                short=len(found[row]) < most,
                comparison=compared,
            )
    return entries


def _as_printed(share: float) -> float:
    return float(percent(share))


def _is_judged(results: Results, column: str) -> bool:
    """Whether a setting has records of more than half of its methods: the best of a few says little."""
    found = [bool(results.at(row, column)) for row in results.rows if (row, column) in results.configs]
    return 2 * sum(found) > len(found)


def bold(what: str, line: str, results: Results) -> str:
    """The caption's sentence on bold figures."""
    begun = [column for column in results.columns if any(results.at(row, column) for row in results.rows)]
    if all(_is_judged(results, column) for column in begun):
        return f"Bold: {what} of its {line}."
    return f"Bold: {what} of its {line}, where more than half of the methods have a record."


def places_table(
    results: Results,
    name: str,
    title: str,
    entries: Mapping[Place, Entry],
    text: str,
    papers: Papers | None = None,
    legend: str = "",
) -> Table:
    """A table of `entries`, settings as columns (or as rows, if the study wants that).

    Args:
        text: the caption, before seeds and protocol.
        papers: the paper's figures, also of places without a record.
        legend: what else has to be said of what is printed.
    """
    shown = pd.DataFrame(MISSING, index=results.rows, columns=results.columns)
    for place, entry in entries.items():
        shown.loc[place] = entry.markdown()
    if not all(results.at(*place) for place in _all_places(results)):
        text += f" {MISSING}: no record."
    rows = results.study.settings_as_rows
    return Table(
        name=name,
        title=title,
        caption=caption(results, text),
        notes=notes(results),
        data=_data(results, entries, papers or {}),
        shown=labelled(shown.T if rows else shown, "setting" if rows else "method"),
        latex=_latex(results, entries, papers or {}),
        legend=legend,
    )


def _all_places(results: Results) -> list[Place]:
    return [(row, column) for column in results.columns for row in results.rows]


def labelled(frame: pd.DataFrame, label: str = "method") -> pd.DataFrame:
    """With the rows' names as the first column."""
    return frame.rename_axis(label).reset_index()


def _data(results: Results, entries: Mapping[Place, Entry], papers: Papers) -> pd.DataFrame:
    """One line a place, in percent; empty where there is nothing."""

    def scaled(value: float | None) -> float | None:
        return None if value is None else 100 * value

    rows = []
    for row, column in _all_places(results):
        entry = entries.get((row, column))
        line: dict[str, object] = {"setting": column, "method": row}
        if entry is None:
            rows.append({**line, "seeds": 0, "paper": scaled(papers.get((row, column)))})
            continue
        compared = entry.comparison
        rows.append(
            {
                **line,
                "mean": scaled(entry.mean),
                "std": scaled(entry.std),
                "seeds": entry.seeds,
                "paper": scaled(entry.paper),
                "difference": scaled(entry.difference),
                "best": entry.best,
                "p_holm": compared.p_holm if compared else None,
            }
        )
    fields = ["setting", "method", "mean", "std", "seeds", "paper", "difference", "best", "p_holm"]
    return pd.DataFrame(rows, columns=fields)


def _latex(results: Results, entries: Mapping[Place, Entry], papers: Papers) -> pd.DataFrame:
    """Ours and, in a column of its own, the paper's."""
    by_setting = not results.study.settings_as_rows
    lines, heads = (results.rows, results.columns) if by_setting else (results.columns, results.rows)
    body: dict[tuple[str, str], list[str]] = {
        ("", "method" if by_setting else "setting"): [tex(line) for line in lines]
    }
    for head in heads:
        places = [(line, head) if by_setting else (head, line) for line in lines]
        found = [entries.get(place) for place in places]
        body[tex(head), "ours"] = [entry.latex() if entry else tex(MISSING) for entry in found]
        if papers:
            figures = [papers.get(place) for place in places]
            body[tex(head), "paper"] = [
                tex(MISSING) if figure is None else percent(figure) for figure in figures
            ]
    frame = pd.DataFrame(body)
    if papers:
        frame.columns = pd.MultiIndex.from_tuples(body)
    else:
        frame.columns = pd.Index([top or name for top, name in body])
    return frame
