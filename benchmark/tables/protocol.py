"""Tables of the studies that choose protocol and hyper-parameters."""

from __future__ import annotations

import math

import pandas as pd

from benchmark.statistics import mean_and_std
from benchmark.studies.paper import paper_accuracy
from benchmark.studies.results import Results
from benchmark.tables.captions import SELECTION, caption, notes
from benchmark.tables.table import MISSING, Table, percent, signed, tex

__all__ = ["calibration", "tuning"]


def calibration(results: Results) -> Table:
    """One row a choice: distance from the paper's figures, cell by cell and in all; complete rows compete."""
    lines, shown = [], []
    names = {c.title: c.title.partition(": ")[0] for c in results.grid.columns}
    for group in dict.fromkeys(column.group for column in results.grid.columns):
        line: dict[str, object] = {"choice": group}
        text: dict[str, str] = {"choice": group}
        distances = []
        for variant in results.grid.variants:
            for column in (c for c in results.grid.columns if c.group == group):
                head = f"{variant.title}, {names[column.title]}"
                values = results.values(variant.title, column.title)
                paper = paper_accuracy(results.study, variant, column)
                line[head], text[head] = None, MISSING
                if not values:
                    continue
                mean = mean_and_std(values)[0]
                line[head], text[head] = 100 * mean, percent(mean)
                if paper is not None:
                    distances.append(abs(mean - paper))
                    text[head] += f" ({signed(mean - paper)})"
        complete = len(distances) == len(line) - 1
        line["total_deviation"] = 100 * math.fsum(distances) if complete else None
        text["total deviation"] = percent(math.fsum(distances)) if complete else MISSING
        lines.append(line)
        shown.append(text)
    data = pd.DataFrame(lines)
    totals = data["total_deviation"].astype(float) if len(data) else pd.Series(dtype=float)
    if totals.notna().any():
        best = totals.argmin()
        shown[best]["total deviation"] = f"**{shown[best]['total deviation']}**"
    words = (
        f"Test accuracy in % {SELECTION}; in brackets, ours minus the paper's. Total deviation: sum of the "
        "absolute differences, of rows that are complete. Bold: smallest."
    )
    return _table(results, data, pd.DataFrame(shown), words)


def tuning(results: Results) -> Table:
    """Validation accuracy of every point, the best of each method marked, and what the search has cost."""
    lines, shown = [], []
    means = results.means()
    algos = {variant.title: variant.algo for variant in results.grid.variants}
    best = {
        (algo, column): means.loc[[t for t in means.index if algos[t] == algo], column].max()
        for algo in set(algos.values())
        for column in results.columns
    }
    for title, algo in algos.items():
        line: dict[str, object] = {"method": title}
        text: dict[str, str] = {"method": title}
        for column in results.columns:
            mean = float(means[column][title])
            known = not math.isnan(mean)
            is_best = known and mean == best[algo, column]
            line[column] = 100 * mean if known else None
            text[column] = (f"**{percent(mean)}**" if is_best else percent(mean)) if known else MISSING
        records = [record for column in results.columns for record in results.at(title, column)]
        samples = sum(int(r.summary["samples"]) + int(r.summary["adaptation_samples"]) for r in records)
        line |= {"runs": len(records), "samples": samples}
        text["runs"] = str(len(records)) if records else MISSING
        text["samples trained on"] = f"{samples:,}" if records else MISSING
        lines.append(line)
        shown.append(text)
    words = (
        f"Accuracy in % on held-out training data {SELECTION}; test data are not looked at. Bold: best "
        "point of a method. Every method is tried at equally many points, the first of them its default."
    )
    return _table(results, pd.DataFrame(lines), pd.DataFrame(shown), words)


def _table(results: Results, data: pd.DataFrame, shown: pd.DataFrame, text: str) -> Table:
    if MISSING in shown.to_numpy():
        text += f" {MISSING}: no record."
    latex = shown.map(_bold).rename(columns=tex)
    return Table(
        name=results.study.name,
        title=results.study.title,
        caption=caption(results, text),
        notes=notes(results),
        data=data,
        shown=shown,
        latex=latex,
    )


def _bold(cell: str) -> str:
    inner = cell.removeprefix("**").removesuffix("**")
    return rf"\textbf{{{tex(inner)}}}" if inner != cell else tex(inner)
