"""What methods spend under each budget, what they reach with it, and in which order."""

from __future__ import annotations

from typing import Any

from pfl_benchmark.present.tables.captions import SELECTION, caption, last_rounds, notes
from pfl_benchmark.present.tables.places import heads, rules_between
from pfl_benchmark.render.table import MISSING, Cell, Head, Table
from pfl_benchmark.studies.grid import Column
from pfl_benchmark.studies.results import Results
from pfl_benchmark.studies.statistics import mean_and_std, ranked

_FIELDS = ("setting", "method", "budget", "rounds", "bytes", "samples", "accuracy", "std", "seeds", "rank")


def spent(results: Results) -> Table:
    """A line for every method and budget."""
    groups: dict[str, list[Column]] = {}
    for column in results.grid.columns:
        groups.setdefault(column.group, []).append(column)
    lines = [line for group in groups.values() for line in _lines(results, group)]
    text = (
        "Budgets: equal rounds; as many rounds as fit into the bytes of FedAvg's and into twice its local "
        "epochs, which is what ends methods that send little; as many as fit into FedAvg's samples. "
        f"{last_rounds(results)} A budget that comes to the configured rounds is the run "
        "under equal rounds. Bytes: in all directions. Samples: trained on, fine-tuning of the final "
        f"model included. Accuracy in % {SELECTION}, clients weighted by their test samples. Rank: by "
        "accuracy, among the methods with records of the setting under every budget, over the seeds that "
        "all of these have."
    )
    if any("rounds" not in line for line in lines):
        text += f" {MISSING}: no record."
    return Table(
        title="Rounds, bytes and samples under each budget",
        caption=caption(results, text),
        heads=(
            Head("setting", words=True, once=True),
            Head("method", words=True, once=True),
            *heads("equal", "rounds", "bytes", "samples", "accuracy", "rank"),
        ),
        rows=tuple(map(_cells, lines)),
        notes=notes(results),
        rules=rules_between([line["setting"] for line in lines]),
        fields=_FIELDS,
    )


def _lines(results: Results, group: list[Column]) -> list[dict[str, Any]]:
    ranks = _ranks(results, group)
    lines = []
    for row in results.rows:
        for column in group:
            budget = {"budget": column.budget, **results.profile.changes, **column.changes}["budget"]
            line: dict[str, Any] = {"setting": column.group, "method": row, "budget": budget}
            line["first"] = column == group[0]
            if records := results.at(row, column.title):
                sums = [record.summary for record in records]
                means = {
                    "rounds": [own["rounds"] for own in sums],
                    "bytes": [record.bytes_sent for record in records],
                    "samples": [own["samples"] + own["adaptation_samples"] for own in sums],
                }
                line |= {name: mean_and_std(found)[0] for name, found in means.items()}
                accuracy, std = mean_and_std([own["accuracy"] for own in sums])
                line |= {"accuracy": accuracy, "std": std, "seeds": len(sums)}
                line["rank"] = ranks[column.title].get(row)
            lines.append(line)
    return lines


def _ranks(results: Results, group: list[Column]) -> dict[str, dict[str, float]]:
    """By column and method, so that the order under one budget can be held against that under another.

    Equal accuracies share their average rank.
    """
    titles = [column.title for column in group]
    complete = [row for row in results.rows if all(results.at(row, title) for title in titles)]
    means = results.restricted([(row, title) for row in complete for title in titles]).means()
    ranks = {title: ranked(means[title].dropna()) for title in titles}
    return {title: {str(row): float(rank) for row, rank in of.items()} for title, of in ranks.items()}


def _cells(line: dict[str, Any]) -> tuple[Cell, ...]:
    facts = {name: line[name] for name in _FIELDS if name in line}
    return (
        Cell(line["setting"], facts=facts),
        Cell(line["method"], again=not line["first"]),
        Cell(line["budget"]),
        Cell(line.get("rounds"), "g"),
        Cell(line.get("bytes"), "size"),
        Cell(line.get("samples"), ",.0f"),
        Cell(line.get("accuracy"), "percent", deviation=line.get("std")),
        Cell(line.get("rank"), "rank"),
    )
