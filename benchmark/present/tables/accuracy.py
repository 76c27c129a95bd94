"""Tables of methods × settings: accuracy with the paper's beside it, tests, ranks, worst clients, spread."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from benchmark.present.tables.captions import DEPENDENT, SELECTION, TEST, caption, costs
from benchmark.present.tables.places import Papers, bold, entries_of, labelled, places_table
from benchmark.present.tables.table import MISSING, Table, p_value, tex
from benchmark.studies.results import Results
from benchmark.studies.statistics import average_ranks

__all__ = ["accuracy", "ranks", "significance", "spread", "worst10"]

_TEST = f"{TEST} between the best and every other method of a setting, Holm-corrected within the setting"


def accuracy(results: Results) -> Table:
    """The study's own table: test accuracy, the paper's figure and the difference beside it."""
    study = results.study
    papers = _papers(results)
    entries = entries_of(results, results.values, larger_is_better=True, papers=papers, tested=True)
    line = "row" if study.settings_as_rows else "column"
    parts = [
        f"Test accuracy in % {SELECTION}, clients weighted by their test samples.",
        bold("best", line, results),
    ]
    if study.axis:
        parts.insert(0, f"Columns: {study.axis}.")
    if any(entry.tied for entry in entries.values()):
        parts.append(f"†: not significantly worse than the best (p ≥ 0.05; {_TEST}).")
    parts.append(costs(results))
    legend = "In brackets: the paper's figure, and ours minus the paper's." if papers else ""
    return places_table(
        results, study.name, study.title, entries, " ".join(filter(None, parts)), papers, legend
    )


def worst10(results: Results) -> Table:
    """Mean accuracy of the tenth of the clients that fares worst."""
    entries = entries_of(results, _metric(results, "accuracy_worst10"), larger_is_better=True)
    text = f"Mean test accuracy in % of the 10 % of clients that fare worst, {SELECTION}."
    text += f" {bold('best', 'column', results)}"
    return places_table(results, f"{results.study.name}-worst10", "Worst 10 % of clients", entries, text)


def spread(results: Results) -> Table:
    """Standard deviation of accuracy over clients."""
    entries = entries_of(results, _metric(results, "accuracy_std"), larger_is_better=False)
    text = f"Standard deviation of test accuracy over clients in percentage points, {SELECTION}."
    text += f" {bold('smallest', 'column', results)}"
    return places_table(results, f"{results.study.name}-spread", "Spread between clients", entries, text)


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
        f"{DEPENDENT}. The best is chosen by the same figures, which makes p somewhat too small."
    )
    return Table(
        name=f"{results.study.name}-significance",
        title=f"Significance: {_within(results.study.title)}",
        caption=caption(results, text),
        notes=(),
        data=pd.DataFrame(rows, columns=fields),
        shown=labelled(shown),
        latex=labelled(shown).map(tex).rename(columns=tex),
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
        shown=labelled(shown),
        latex=labelled(latex.replace(MISSING, tex(MISSING))).rename(columns=tex),
    )


def _metric(results: Results, name: str) -> Callable[[str, str], list[float]]:
    return lambda row, column: results.values(row, column, name)


def _papers(results: Results) -> Papers:
    """The paper's figures, also of places without a record."""
    printed = results.study.paper
    if printed is None:
        return {}
    return {
        (variant.title, column.title): figure
        for column in results.grid.columns
        for variant in results.grid.variants
        if (figure := printed.accuracy(column.paper, variant.printed)) is not None
    }


def _within(title: str) -> str:
    """A title within a sentence: its first word small, unless it is an abbreviation."""
    return title if title[:2].isupper() else title[0].lower() + title[1:]
