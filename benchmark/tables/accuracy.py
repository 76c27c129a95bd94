"""Tables of methods × settings: accuracy with the paper's beside it, tests, ranks, worst clients, spread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from benchmark.statistics import Comparison, average_ranks, mean_and_std
from benchmark.studies.paper import paper_accuracy
from benchmark.studies.results import Place, Results
from benchmark.tables.captions import DEPENDENT, SELECTION, TEST, caption, most_seeds, notes
from benchmark.tables.table import MISSING, Table, p_value, percent, signed, tex

__all__ = ["accuracy", "ranks", "significance", "spread", "worst10"]

_TEST = f"{TEST} between the best and every other method of a setting, Holm-corrected within the setting"


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


def accuracy(results: Results) -> Table:
    """The study's own table: test accuracy, the paper's figure and the difference beside it."""
    study = results.study
    entries = _entries(results, "accuracy", larger_is_better=True, tested=True)
    line = "row" if study.settings_as_rows else "column"
    parts = [
        f"Test accuracy in % {SELECTION}, clients weighted by their test samples.",
        _bold("best", line, results),
    ]
    if study.axis:
        parts.insert(0, f"Columns: {study.axis}.")
    if any(entry.tied for entry in entries.values()):
        parts.append(f"†: not significantly worse than the best (p ≥ 0.05; {_TEST}).")
    papers = _papers(results)
    legend = "In brackets: the paper's figure, and ours minus the paper's." if papers else ""
    return _table(results, study.name, study.title, entries, " ".join(parts), papers, legend)


def worst10(results: Results) -> Table:
    """Mean accuracy of the tenth of the clients that fares worst."""
    entries = _entries(results, "accuracy_worst10", larger_is_better=True)
    text = f"Mean test accuracy in % of the 10 % of clients that fare worst, {SELECTION}."
    text += f" {_bold('best', 'column', results)}"
    return _table(results, f"{results.study.name}-worst10", "Worst 10 % of clients", entries, text)


def spread(results: Results) -> Table:
    """Standard deviation of accuracy over clients."""
    entries = _entries(results, "accuracy_std", larger_is_better=False)
    text = f"Standard deviation of test accuracy over clients in percentage points, {SELECTION}."
    text += f" {_bold('smallest', 'column', results)}"
    return _table(results, f"{results.study.name}-spread", "Spread between clients", entries, text)


def significance(results: Results) -> Table:
    """p-values of the best method of every setting against the others."""
    rows, shown = [], pd.DataFrame(MISSING, index=results.rows, columns=results.columns)
    for column in results.columns:
        for other, found in results.comparisons[column].items():
            shown.loc[found.best, column] = "best"
            shown.loc[other, column] = p_value(found.p_holm) + " †" * (not found.significant)
            rows.append(
                {
                    "setting": column,
                    "best": found.best,
                    "method": other,
                    "pairs": found.pairs,
                    "mean_difference": 100 * found.difference,
                    "standard_error": 100 * found.standard_error,
                    "p": found.p,
                    "p_holm": found.p_holm,
                    "significant": found.significant,
                }
            )
    fields = [
        "setting", "best", "method", "pairs", "mean_difference", "standard_error", "p", "p_holm",
        "significant",
    ]  # fmt: skip
    text = (
        f"Corrected p-values: {_TEST}. †: p ≥ 0.05. The pairs are clients' test accuracies, unweighted; "
        f"{DEPENDENT}."
    )
    return Table(
        name=f"{results.study.name}-significance",
        title=f"Significance: {_within(results.study.title)}",
        caption=caption(results, text),
        notes=(),
        data=pd.DataFrame(rows, columns=fields),
        shown=_labelled(shown),
        latex=_labelled(shown).map(tex).rename(columns=tex),
    )


def ranks(results: Results) -> Table:
    """Rank of every method in every setting that all have, and the average."""
    found = average_ranks(results.means())
    columns = [str(name) for name in found.columns if name != "average"]
    shown = pd.DataFrame(MISSING, index=results.rows, columns=[*columns, "average rank"])
    latex = shown.copy()
    for method, line in found.iterrows():
        for name in found.columns:
            best = line[name] == found[name].min()
            text = MISSING if pd.isna(line[name]) else f"{line[name]:.2f}".removesuffix(".00")
            place = (method, "average rank" if name == "average" else name)
            shown.loc[place] = f"**{text}**" if best else text
            latex.loc[place] = rf"\textbf{{{text}}}" if best else tex(text)
    text = "Rank by mean test accuracy, 1 is best; ties share their mean. "
    text += f"Only settings that all methods have: {len(columns)} of {len(results.columns)}."
    return Table(
        name=f"{results.study.name}-ranks",
        title="Average ranks",
        caption=caption(results, text),
        notes=(),
        data=found.rename_axis("method").rename(columns={"average": "average_rank"}).reset_index(),
        shown=_labelled(shown),
        latex=_labelled(latex.replace(MISSING, tex(MISSING))).rename(columns=tex),
    )


# -- the common form ----------------------------------------------------------------------------------


def _entries(
    results: Results, metric: str, larger_is_better: bool, tested: bool = False
) -> dict[Place, Entry]:
    entries: dict[Place, Entry] = {}
    papers = _papers(results) if metric == "accuracy" else {}
    all_means = results.means(metric)
    for column in results.grid.columns:
        comparisons = results.comparisons[column.title] if tested else {}
        means = all_means[column.title].dropna().map(percent).astype(float)
        best = means.max() if larger_is_better else means.min()
        judged, most = _is_judged(results, column.title), most_seeds(results, column.title)
        for variant in results.grid.variants:
            values = results.values(variant.title, column.title, metric)
            if not values:
                continue
            mean, std = mean_and_std(values)
            compared = comparisons.get(variant.title)
            is_best = judged and float(percent(mean)) == best
            entries[variant.title, column.title] = Entry(
                mean=mean,
                std=std,
                seeds=len(values),
                paper=papers.get((variant.title, column.title)),
                best=is_best,
                tied=judged and compared is not None and not compared.significant and not is_best,
                short=len(values) < most,
                comparison=compared,
            )
    return entries


def _is_judged(results: Results, column: str) -> bool:
    """Whether a setting has records of more than half of its methods: the best of a few says little."""
    found = [bool(results.at(row, column)) for row in results.rows if (row, column) in results.configs]
    return 2 * sum(found) > len(found)


def _bold(what: str, line: str, results: Results) -> str:
    """The caption's sentence on bold figures."""
    begun = [column for column in results.columns if any(results.at(row, column) for row in results.rows)]
    if all(_is_judged(results, column) for column in begun):
        return f"Bold: {what} of its {line}."
    return f"Bold: {what} of its {line}, where more than half of the methods have a record."


def _papers(results: Results) -> dict[Place, float]:
    """The paper's figures, also of places without a record."""
    return {
        (variant.title, column.title): figure
        for column in results.grid.columns
        for variant in results.grid.variants
        if (figure := paper_accuracy(results.study.paper, variant, column)) is not None
    }


def _table(
    results: Results,
    name: str,
    title: str,
    entries: Mapping[Place, Entry],
    text: str,
    papers: Mapping[Place, float] | None = None,
    legend: str = "",
) -> Table:
    shown = pd.DataFrame(MISSING, index=results.rows, columns=results.columns)
    for place, entry in entries.items():
        shown.loc[place] = entry.markdown()
    if any(place not in entries for place in _all_places(results)):
        text += f" {MISSING}: no record."
    rows = results.study.settings_as_rows
    return Table(
        name=name,
        title=title,
        caption=caption(results, text),
        notes=notes(results),
        data=_data(results, entries, papers or {}),
        shown=_labelled(shown.T if rows else shown, "setting" if rows else "method"),
        latex=_latex(results, entries, papers or {}),
        legend=legend,
    )


def _all_places(results: Results) -> list[Place]:
    return [(row, column) for column in results.columns for row in results.rows]


def _labelled(frame: pd.DataFrame, label: str = "method") -> pd.DataFrame:
    return frame.rename_axis(label).reset_index()


def _data(results: Results, entries: Mapping[Place, Entry], papers: Mapping[Place, float]) -> pd.DataFrame:
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


def _latex(results: Results, entries: Mapping[Place, Entry], papers: Mapping[Place, float]) -> pd.DataFrame:
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


def _within(title: str) -> str:
    """A title within a sentence: its first word small, unless it is an abbreviation."""
    return title if title[:2].isupper() else title[0].lower() + title[1:]
