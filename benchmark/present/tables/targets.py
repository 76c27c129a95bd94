"""What methods spend until they first reach a target accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pfl_benchmark.present.tables.captions import caption, notes, sampled_in
from pfl_benchmark.present.tables.places import heads, rules_between
from pfl_benchmark.records.store import Record
from pfl_benchmark.render.forms import percent
from pfl_benchmark.render.table import MISSING, Cell, Head, Table
from pfl_benchmark.studies.results import Results
from pfl_benchmark.studies.targets import Reached, Target, at_last, reached

_FIELDS = (
    "setting", "target", "target_accuracy", "method", "rounds", "bytes", "samples", "at_most", "reached",
    "seeds", "accuracy",
)  # fmt: skip
EXPLANATION = (
    "Until the first evaluation with at least the target's test accuracy: rounds; bytes up and down; samples "
    "trained on. The last aggregate's broadcast and fine-tuning, without which clients cannot be evaluated, "
    "are not charged in any round. never: not up to the last round, in some seed at least. ≤: the method "
    "fine-tunes after the last round alone; --eval-adapted evaluates it so on the way. Accuracy: in % after "
    "the last round."
)


def targets(results: Results) -> Table:
    """Targets are the accuracies of FedAvg and of Local Only after their last round, seed by seed."""
    lines = []
    for column in results.columns:
        local = next((v.title for v in results.grid.variants if v.algo == "local"), "")
        alone = results.records.get((local, column), {})
        rows = {row: results.records.get((row, column), {}) for row in results.rows}
        wanted = (at_last("FedAvg's", results.fedavg[column]), at_last("Local Only's", alone))
        lines += lines_of(column, rows, [target for target in wanted if target.at])
    text = (
        f"Targets: accuracies of FedAvg and of Local Only after the last round, seed by seed. {EXPLANATION}"
    )
    return targets_table(lines, caption(results, text, sampled_in(results)), notes(results))


def lines_of(
    setting: str, rows: Mapping[str, Mapping[int, Record]], wanted: Iterable[Target]
) -> list[dict[str, Any]]:
    """A line for every target and method; `rows` are the records of each method, by seed."""
    return [
        {
            "setting": setting,
            "target": target.title,
            "target_accuracy": target.mean,
            "method": row,
            **_figures(reached(records, target), records),
        }
        for target in wanted
        for row, records in rows.items()
    ]


def _figures(found: Reached, records: Mapping[int, Record]) -> dict[str, Any]:
    if not found.seeds:
        return {}
    accuracies = [record.summary["accuracy"] for record in records.values()]
    return {
        **{name: found.mean(name) for name in ("rounds", "bytes", "samples")},
        "at_most": any(cost.at_most for cost in found.costs),
        "reached": len(found.costs),
        "seeds": found.seeds,
        "accuracy": sum(accuracies) / len(accuracies),
    }


def targets_table(lines: list[dict[str, Any]], text: str, remarks: tuple[str, ...] = ()) -> Table:
    """The table of what `lines_of` returns."""
    if any("seeds" not in line for line in lines):
        text += f" {MISSING}: no record."
    for line in lines:
        line["target_in_words"] = f"{line['target']} {percent(line['target_accuracy'])}".strip()
    partly = [
        f"{line['method']} on {line['setting']} reaches {line['target_in_words']} in {line['reached']} of "
        f"{line['seeds']} seeds"
        for line in lines
        if 0 < line.get("reached", 0) < line["seeds"]
    ]
    return Table(
        title="Cost to a target",
        caption=text,
        heads=(
            Head("setting", words=True, once=True),
            Head("target", words=True, once=True),
            *heads("method", "rounds", "bytes", "samples", "accuracy"),
        ),
        rows=tuple(map(_cells, lines)),
        notes=(*partly, *remarks),
        rules=rules_between([(line["setting"], line["target"]) for line in lines]),
        fields=_FIELDS,
    )


def _cells(line: dict[str, Any]) -> tuple[Cell, ...]:
    facts = {name: line[name] for name in _FIELDS if name in line}
    names = (Cell(line["setting"], facts=facts), Cell(line["target_in_words"]), Cell(line["method"]))
    rounds = line.get("rounds")
    if rounds is None:
        known = "seeds" in line
        return (
            *names,
            Cell("never" if known else None),
            *(Cell("" if known else None) for _ in range(2)),
            Cell(line.get("accuracy"), "percent"),
        )
    return (
        *names,
        Cell(f"≤ {rounds:g}") if line["at_most"] else Cell(rounds, "g"),
        Cell(line["bytes"], "size"),
        Cell(line["samples"], ",.0f"),
        Cell(line["accuracy"], "percent"),
    )
