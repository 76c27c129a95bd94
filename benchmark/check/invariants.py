"""The checks of a method, one function each: they take a `Case`, and fail with a line that says why."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pfl_benchmark.algorithms import needed
from pfl_benchmark.check import equality
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.engine import clients
from pfl_benchmark.engine.budget import first_participants, left_out
from pfl_benchmark.engine.dry import Costs
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.errors import NotDefined
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.experiment.runner import run_cell
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.resolve.run import Run, resolve

# Less work than executors are compared by: these runs are made many times.
PROTOCOL: Mapping[str, Any] = {**equality.PROTOCOL, "dataset": "digits", "local_epochs": 1, "eval_every": 4}


class Failed(Exception):
    """A check has found something wrong."""


class _Stopped(Exception):
    """A run was broken off, as a kill would."""


class _Stop(Quiet):
    """Breaks a run off after a round."""

    def __init__(self, after: int) -> None:
        self._after = after

    def round(self, line: Mapping[str, Any]) -> None:
        if line["round"] == self._after:
            raise _Stopped


@dataclass
class Case:
    """A method with its defaults, or one of its ablations, and a folder for its records."""

    algo: str
    folder: Path
    ablation: str | None = None
    _plain: Path | None = field(default=None, init=False)

    def resolved(self, executor: str = "loop", **changes: Any) -> Run:
        """The small run, with other fields of its configuration."""
        config = RunConfig(algo=self.algo, **{**PROTOCOL, **needed(self.algo), **changes})
        return resolve(config, self._execution("", executor), self.ablation)

    def _execution(self, name: str, executor: str) -> Execution:
        return Execution("cpu", executor, results_dir=self.folder / name, checkpoint_seconds=0.0)

    def run(self, name: str, stop_after: int = 0, executor: str = "loop", **changes: Any) -> Path:
        """Carry out the small run, or go on with it, in a folder `name`; returns its record.

        Args:
            stop_after: break it off after this round.
        """
        observer = _Stop(stop_after) if stop_after else Quiet()
        execution, run = self._execution(name, executor), self.resolved(executor, **changes)
        try:
            return Path(run_cell(run, execution, observer)["record"])
        except _Stopped:
            return next((self.folder / name).glob(f"*{run.config.hash}"))

    @property
    def plain(self) -> Path:
        """The record of the small run by the loop."""
        if self._plain is None:
            self._plain = self.run("plain")
        return self._plain


def content(record: Path) -> dict[str, Any]:
    """All of a record that a rerun must give again, bit for bit."""
    text = (record / "rounds.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    found: dict[str, Any] = {"rounds": [_untimed(line) for line in lines]}
    for name in ("clients.csv", "diagnostics.json"):
        path = record / name
        found[name] = path.read_text(encoding="utf-8") if path.exists() else ""
    return found


def _untimed(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if not name.startswith("seconds")}


def _summary(record: Path) -> dict[str, Any]:
    return json.loads((record / "summary.json").read_text(encoding="utf-8"))


def _same(found: Path, expected: Path, what: str) -> None:
    ours, theirs = content(found), content(expected)
    for name, value in theirs.items():
        if ours[name] == value:
            continue
        where = name
        if name == "rounds":
            pairs = enumerate(zip(ours[name], value, strict=False), start=1)
            number = next((n for n, (a, b) in pairs if a != b), len(value))
            where = f"round {number}"
        raise Failed(f"{what}: {where} differs")


def hooks(case: Case) -> str:
    """A run ends, and its hooks return what the engine can take and change nothing in place."""
    return f"accuracy {_summary(case.plain)['accuracy']:.2%} after {PROTOCOL['rounds']} rounds"


def ledger(case: Case) -> str:
    """Bytes and samples of every round are those of a participation without training (`engine.dry`)."""
    prepared = prepare(case.resolved(), Execution("cpu", "loop"))
    algorithm, schedule = prepared.make(PROTOCOL["rounds"]), prepared.task.schedule
    sizes = prepared.task.data.train_sizes
    try:
        costs = dict(Costs().of(algorithm))
    finally:
        prepared.task.executor.close()
    for line in content(case.plain)["rounds"]:
        number = line["round"]
        cost, kind = costs[number], algorithm.kind(number)
        cohort = schedule.cohort(number, kind.full_participation)
        late = left_out(algorithm, number) * cost.first if kind.closing else 0
        expected = {
            "bytes_down": len(cohort) * cost.down + first_participants(algorithm, number) * cost.first,
            "bytes_up": len(cohort) * cost.up,
            "bytes_broadcast": len(sizes) * cost.closing + late,
        }
        for name, value in expected.items():
            if line[name] != value:
                raise Failed(f"round {number}: {name} is {line[name]:,}, planned are {value:,}")
        samples = cost.epochs * sum(sizes[client] for client in cohort)
        if abs(line["samples"] - samples) > 0.05 * samples + 2 * len(cohort):  # parts of epochs are rounded
            raise Failed(f"round {number}: {line['samples']:,} samples, planned are {samples:,.0f}")
    return f"{len(costs)} rounds"


def resume(case: Case) -> str:
    """A run that was broken off goes on as if it had not been."""
    stops = (1, 3, PROTOCOL["rounds"] - 1)
    for after in stops:
        case.run(f"stopped-{after}", stop_after=after)
        record = case.run(f"stopped-{after}")
        if not _summary(record)["resumed"]:
            raise Failed(f"broken off after round {after}: its checkpoint cannot be used (`state`, `load`)")
        _same(record, case.plain, f"broken off after round {after}")
    return f"after rounds {', '.join(map(str, stops))}"


def chunks(case: Case) -> str:
    """Results do not depend on how many clients are held in memory together."""
    with patch.object(clients, "CHUNK", 2):
        _same(case.run("chunks"), case.plain, "two clients at a time")
    return "2 and 20 clients at a time"


def executors(case: Case) -> str:
    """Threads and stacked train and evaluate as the loop does."""
    told = []
    for name in (name for name in EXECUTORS if name != "loop"):
        run = case.resolved()
        if reason := EXECUTORS[name].unable(run.network, run.method.not_stackable):
            told.append(f"not {name} ({reason})")
            continue
        execution = Execution("cpu", name)
        for found in equality.equality(execution, ["digits"], name, [(case.algo, case.ablation)]):
            if not (found["equal"] and found["repeatable"]):
                kind = f"differs by {found['difference']:.2g}" if not found["equal"] else "is not repeatable"
                raise Failed(f"{name} {kind} in stage {found['stage']}")
        told.append(name)
    return ", ".join(told)


def budgets(case: Case) -> str:
    """Runs under equal bytes and equal samples spend what was planned, and no more than they may."""
    told = []
    for budget in ("bytes", "samples"):
        found = _summary(case.run(budget, budget=budget, partition="distinct", rounds=16, compute_cap=1.5))
        names = (
            ("bytes_up", "bytes_down", "bytes_broadcast")
            if budget == "bytes"
            else (
                "samples",
                "adaptation_samples",
            )
        )
        spent, plan = sum(found[name] for name in names), found["budget"]
        slack = 0 if budget == "bytes" else 0.05 * spent
        if abs(spent - plan["planned"]) > slack or plan["planned"] > plan["limit"]:
            raise Failed(f"{budget}: {spent:,} spent, {plan['planned']:,} planned of {plan['limit']:,}")
        told.append(f"{plan['rounds']} rounds of equal {budget}")
    return ", ".join(told)


def new_clients(case: Case) -> str:
    """Clients that took no part in training can begin after it, or the method says why not."""
    try:
        found = _summary(case.run("new", new_clients=0.34))["new_clients"]
    except NotDefined as error:
        return f"none: {error}"
    return f"accuracy {found['accuracy']:.2%}"


def text(case: Case) -> str:
    """The method trains on text, or says that it is not defined for it."""
    values = {**SETTINGS["synth-tweets"].values, "clients": 6, "participation": 0.5, "local_epochs": 1}
    try:
        found = _summary(case.run("text", **{"dirichlet": 0.0, **values, "rounds": PROTOCOL["rounds"]}))
    except NotDefined:
        return "not defined for text"
    return f"accuracy {found['accuracy']:.2%}"


CHECKS: Mapping[str, Callable[[Case], str]] = {
    check.__name__.replace("_", " "): check
    for check in (hooks, ledger, resume, chunks, executors, budgets, new_clients, text)
}
