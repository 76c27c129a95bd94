"""Tables of the studies that choose protocol and hyper-parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from benchmark.present.tables.captions import SELECTION, TEST, caption, notes
from benchmark.present.tables.table import MISSING, Table, p_value, percent, signed, tex
from benchmark.records.store import Record
from benchmark.studies.results import Place, Results
from benchmark.studies.statistics import Comparison, compare_with_best, mean_and_std

__all__ = ["calibration", "points", "rates", "tuning"]


_TOTAL = "total deviation"
_HELD_OUT = f"Accuracy in % {SELECTION}; test data are not looked at."


def calibration(results: Results) -> Table:
    """One row a choice: distance from the paper's figures, cell by cell, by dataset and in all.

    A sum stands only where all of its figures are there, so that an unfinished row is not favoured.
    """
    groups = list(dict.fromkeys(column.group for column in results.grid.columns))
    lines: dict[str, dict[str, object]] = {group: {"choice": group} for group in groups}
    texts = {group: {"choice": group} for group in groups}
    distances: dict[str, dict[str, list[float | None]]] = {}  # by sum and choice
    for variant in results.grid.variants:
        for column in results.grid.columns:
            head, group = f"{variant.title}, {column.title.partition(': ')[0]}", column.group
            values = results.values(variant.title, column.title)
            mean = mean_and_std(values)[0] if values else None
            lines[group][head] = None if mean is None else 100 * mean
            texts[group][head] = MISSING if mean is None else percent(mean)
            printed = results.study.paper
            paper = printed.accuracy(column.paper, variant.printed) if printed else None
            if column.paper is None or paper is None:
                continue
            if mean is not None:
                texts[group][head] += f" ({signed(mean - paper)})"
            for name in (f"deviation, {column.paper[0]}", _TOTAL):
                found = distances.setdefault(name, {}).setdefault(group, [])
                found.append(None if mean is None else abs(mean - paper))
    for name in sorted(distances, key=_TOTAL.__eq__):  # the sum over everything last
        sums = {
            group: math.fsum(d for d in found if d is not None) if None not in found else None
            for group, found in distances[name].items()
        }
        known = [total for total in sums.values() if total is not None]
        for group, total in sums.items():
            lines[group][name.replace(", ", "_").replace(" ", "_")] = None if total is None else 100 * total
            text = MISSING if total is None else percent(total)
            best = name == _TOTAL and len(known) > 1 and total == min(known)
            texts[group][name] = f"**{text}**" if best else text
    words = f"Test accuracy in % {SELECTION}."
    if distances:
        words += " In brackets: ours minus the paper's. Deviation: sum of the absolute differences."
        words += " Bold: smallest." * any("**" in text.get(_TOTAL, "") for text in texts.values())
        words += " Rows that differ in dropout alone have the same runs on CIFAR-10."
    return _table(results, pd.DataFrame(list(lines.values())), pd.DataFrame(list(texts.values())), words)


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
            line[column], text[column] = _figure(mean, best[algo, column])
        records = [record for column in results.columns for record in results.at(title, column)]
        line["runs"] = len(records)
        text["runs"] = str(len(records)) if records else MISSING
        _add_cost(line, text, records)
        lines.append(line)
        shown.append(text)
    words = (
        f"{_HELD_OUT} Bold: best point of a method. Every method is tried at equally many points, the first "
        "of them its default."
    )
    return _table(results, pd.DataFrame(lines), pd.DataFrame(shown), words)


def rates(results: Results) -> Table:
    """Validation accuracy by learning rate, tested against each method's default, and the search's cost."""
    means = results.means()
    default = next(column.title for column in results.grid.columns if "lr" not in column.changes)
    lines, shown = [], []
    for method in results.rows:
        figures = {column: float(means[column][method]) for column in results.columns}
        best = _best(results, [(method, column) for column in results.columns])
        samples = {column: results.samples(method, column) for column in results.columns}
        tests = compare_with_best(samples, default)
        line: dict[str, object] = {"method": method}
        text: dict[str, str] = {"method": method}
        for column, mean in figures.items():
            line[column], text[column] = _figure(mean, best)
            if column in tests:
                found = _against_default(tests[column])
                line |= {f"{name}, {column}": value for name, value in found.items()}
                text[column] += " †" * (not tests[column].significant)
        _add_cost(line, text, [r for column in results.columns for r in results.at(method, column)])
        lines.append(line)
        shown.append(text)
    words = (
        f"{_HELD_OUT} Bold: a method's best learning rate, where all have a record (of the same seeds). †: "
        f"not significantly different from the method's default, {default} (p ≥ 0.05; "
        f"{TEST}, Holm-corrected within the method). All else is its default."
    )
    return _table(results, pd.DataFrame(lines), pd.DataFrame(shown), words)


def points(results: Results) -> Table:
    """Validation accuracy of method-specific hyper-parameters, tested against the default, and the cost."""
    (column,) = results.columns
    means = results.means()[column]
    titles: dict[str, list[str]] = {}
    for variant in results.grid.variants:
        titles.setdefault(variant.algo, []).append(variant.title)
    lines: list[dict[str, object]] = []
    shown: list[dict[str, str]] = []
    rules = []
    for own in titles.values():
        default = own[0]
        best = _best(results, [(title, column) for title in own])
        tests = compare_with_best({title: results.samples(title, column) for title in own}, default)
        rules.append(len(lines))
        for title in own:
            point = title.removeprefix(f"{default}, ") if title != default else "default"
            line: dict[str, object] = {"method": default, "point": point}
            text = {"method": default, "point": point}
            line["accuracy"], text["accuracy"] = _figure(float(means[title]), best)
            text |= dict.fromkeys(("against default", "p"), "" if title == default else MISSING)
            if test := tests.get(title):
                line |= _against_default(test)
                text["against default"] = f"{signed(-test.difference)} ({percent(test.standard_error)})"
                text["p"] = p_value(test.p_holm)
            _add_cost(line, text, results.at(title, column))
            lines.append(line)
            shown.append(text)
    words = (
        f"{_HELD_OUT} Bold: best point of a method, where all have a record (of the same seeds). Against "
        "default: mean difference over clients and the seeds that both have, in brackets its standard "
        f"error (clients taken as independent). p: {TEST}, Holm-corrected for those points of "
        "the method that have a record."
    )
    return _table(results, pd.DataFrame(lines), pd.DataFrame(shown), words, tuple(rules[1:]))


def _best(results: Results, places: Sequence[Place]) -> float | None:
    """The largest mean of some places; None unless all have records, and of the same seeds."""
    seeds = {tuple(results.records.get(place, ())) for place in places}
    if len(seeds) > 1 or () in seeds:
        return None
    return max(mean_and_std(results.values(*place))[0] for place in places)


def _figure(mean: float, best: float | None) -> tuple[float | None, str]:
    """An accuracy in percent, and as printed: bold if it is `best`; NaN stands for no record."""
    if math.isnan(mean):
        return None, MISSING
    return 100 * mean, f"**{percent(mean)}**" if mean == best else percent(mean)


def _against_default(test: Comparison) -> dict[str, float]:
    """Of the other of a comparison with the default: its gain, and how sure that is."""
    return {
        "difference": -100 * test.difference,
        "standard_error": 100 * test.standard_error,
        "p_holm": test.p_holm,
    }


def _add_cost(line: dict[str, object], text: dict[str, str], records: Sequence[Record]) -> None:
    """Enter all samples that runs have trained on, fine-tuning included."""
    spent = sum(int(r.summary["samples"]) + int(r.summary["adaptation_samples"]) for r in records)
    line["samples"] = spent
    text["samples trained on"] = f"{spent:,}" if records else MISSING


def _table(
    results: Results, data: pd.DataFrame, shown: pd.DataFrame, text: str, rules: tuple[int, ...] = ()
) -> Table:
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
        rules=rules,
    )


def _bold(cell: str) -> str:
    inner = cell.removeprefix("**").removesuffix("**")
    return rf"\textbf{{{tex(inner)}}}" if inner != cell else tex(inner)
