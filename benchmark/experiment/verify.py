"""Whether the code that is here gives the figures of a finished record: rounds are run again and compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.engine.budget import Plan, last_round, plan_rounds
from pfl_benchmark.engine.client_memory import ClientMemory
from pfl_benchmark.engine.executors import EXECUTORS, choose_executor
from pfl_benchmark.engine.executors.threads import available_cores
from pfl_benchmark.engine.precision import precision
from pfl_benchmark.engine.rounds import Diverged, Observer, run
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import RAY, Execution
from pfl_benchmark.experiment.prepare import Prepared, prepare
from pfl_benchmark.experiment.verdict import Figures, Gap, Verdict, drift_of, figures_of, gaps_of
from pfl_benchmark.records.environment import environment
from pfl_benchmark.records.record import Record, read_record
from pfl_benchmark.records.same_data import Source, data_for, source_of
from pfl_benchmark.records.scratch import scratch
from pfl_benchmark.records.seal import DIFFERENT
from pfl_benchmark.records.writer import RunRecord
from pfl_benchmark.resolve.code import code_of, installed_plugins
from pfl_benchmark.resolve.run import Run

ROUNDS = 3  # that are run again if nothing else is asked for

# Rounding grows with every step, in some runs faster than in others, so no fixed tolerance would do for
# records of other machines. A control run begins with weights changed by as little as rounding changes them,
NUDGE = 1e-6  # (`verdict.DRIFT`)


def load_data(records: Sequence[Record], data_dir: Path | None) -> dict[Source, datasets.Dataset]:
    """The datasets of some records, each read once; UserError where one is not here: none is downloaded."""
    wanted = dict.fromkeys(source_of(record.config) for record in records)
    return {
        (name, width): datasets.load(name, data_dir, download=False, embedding=width)
        for name, width in wanted
    }


def execution_for(record: Record, run: Run, asked: Execution) -> Execution:
    """How to run a record again: as asked, and where that leaves a choice as the record was made."""
    if len(asked.pick_devices()) > 1 or asked.executor == RAY:
        raise UserError("rounds are repeated on one device; give one as --device, and no --executor ray")
    made, network, not_stackable = record.summary["environment"], run.network, run.method.not_stackable
    if asked.device == "auto" and made.get("device") == "cpu":
        asked = replace(asked, device="cpu")
    kind, name = asked.pick_device().type, made.get("executor")
    if (
        asked.executor == "auto"
        and name in EXECUTORS
        # `auto` does, client by client, what an executor that was asked for by name refuses.
        and name != choose_executor(kind, network, not_stackable)
        and (kind == "cpu") == (made.get("device") == "cpu")
        and not EXECUTORS[name].unable(network, not_stackable)
    ):
        asked = replace(asked, executor=name)
    return replace(asked, tf32=asked.tf32 or bool(made.get("tf32")))


def cores_for(record: Record, run: Run) -> int:
    """Cores to run a record again on, at most: as it was made on, if their number decides its floats."""
    made = record.summary["environment"].get("cores")
    decide = run.device.type == "cpu" and EXECUTORS[run.executor].by_cores
    return made if decide and isinstance(made, int) and made >= 1 else available_cores()


def check_record(
    record: Record, run: Run, rounds: int, execution: Execution, dataset: datasets.Dataset
) -> None:
    """Raise UserError, before anything is trained, for more rounds than the run has and for other data."""
    if rounds > len(record.rounds):
        raise UserError(
            f"--rounds is {rounds}, but the run {record.folder.name} has {len(record.rounds)}; "
            "give at most that many, or --all"
        )
    here = data_for(record.config, dataset)
    prepared = prepare(run, execution, dataset)
    prepared.task.executor.close()
    if record.data.differs(here) or record.split != prepared.split.checksum:
        raise UserError(
            f"{record.folder.name} was made on another copy of '{record.config.dataset}' or another split "
            f"({record.data}, split {record.split}; {here}, split {prepared.split.checksum} here); "
            "give the folder of those data (--data-dir), or leave the record out"
        )


def verify(
    record: Record,
    resolved: Run,
    rounds: int,
    execution: Execution,
    dataset: datasets.Dataset,
    observer: Observer,
) -> Verdict:
    """Run the first rounds of a record again (`resolved` by its configuration and `execution`) and compare.

    The method sees the run's full number of rounds, on which its stages may depend; nothing is taken over
    from other runs, and nothing is written but to a temporary folder.
    """
    prepared = prepare(resolved, execution, dataset)
    config = prepared.config
    plugins = installed_plugins(config, resolved.plain)
    surroundings = environment(prepared.task.data.device, prepared.resolved.executor, plugins)
    surroundings |= {"tf32": execution.tf32, "code": code_of(config, resolved.plain)}
    try:
        plan = plan_rounds(config, prepared.make)
        last = last_round(plan, config)
        if last != len(record.rounds):
            gap = Gap("plan", "rounds", len(record.rounds), last, math.inf)
            return Verdict(record, 0, 1, [gap], surroundings)
        memory = execution.pick_client_memory(prepared.task.data.device)
        with precision(execution.tf32):
            found = _again(prepared, plan, rounds, observer, surroundings, memory)
            if isinstance(found, Gap):
                line = record.rounds[int(found.place.removeprefix("round ")) - 1]
                gap = replace(found, recorded=line["loss"])
                return Verdict(record, line["round"], len(line), [gap], surroundings)
            recorded = figures_of(record.rounds[:rounds], record if rounds == last else None)
            verdict = Verdict(record, rounds, len(recorded), gaps_of(recorded, found), surroundings)
            if verdict.verdict != DIFFERENT or not verdict.elsewhere:
                return verdict
            control = _again(_nudged(prepared), plan, rounds, observer, surroundings, memory)
            drift = {} if isinstance(control, Gap) else drift_of(gaps_of(found, control), rounds)
            return replace(verdict, drift=drift)
    finally:
        prepared.task.executor.close()


def _again(
    prepared: Prepared,
    plan: Plan,
    rounds: int,
    observer: Observer,
    surroundings: Mapping[str, Any],
    memory: float,
) -> Figures | Gap:
    """The figures of the first rounds of a run; a gap where training diverges.

    Args:
        memory: bytes for what clients keep.
    """
    watched, whole = _Watched(observer, rounds), rounds == last_round(plan, prepared.config)
    with scratch() as root:
        made = RunRecord(root, prepared.config, prepared.config.algo)
        made.folder.mkdir()
        made.begin({"split": {"checksum": prepared.split.checksum}})
        try:
            with ClientMemory(made.folder, memory).used():
                run(prepared.make(plan.rounds), plan, made, None, watched, surroundings, math.inf)
        except _Enough:
            pass
        except Diverged as error:
            return Gap(f"round {len(watched.lines) + 1}", "loss", None, str(error).split(";")[0], math.inf)
        return figures_of(watched.lines, read_record(made.folder) if whole else None)


def _nudged(prepared: Prepared) -> Prepared:
    """The run with initial weights that differ by `NUDGE` of themselves, up or down."""
    rng = np.random.default_rng(0)
    initial = {
        name: tensor * torch.from_numpy(1 + NUDGE * rng.choice([-1.0, 1.0], tensor.shape)).to(tensor)
        for name, tensor in prepared.task.initial.items()
    }
    return replace(prepared, task=replace(prepared.task, initial=initial))


class _Enough(Exception):
    """The rounds that were wanted are done."""


class _Watched:
    """Keeps the lines of the rounds and ends a run after some of them: no round loop needs to know."""

    def __init__(self, observer: Observer, rounds: int) -> None:
        self._observer, self._rounds = observer, rounds
        self.lines: list[Mapping[str, Any]] = []

    def start(self, rounds: int, done: int) -> None:
        self._left = rounds - self._rounds
        self._observer.start(self._rounds, done)

    def round(self, line: Mapping[str, Any]) -> None:
        self.lines.append(line)
        self._observer.round(line)
        if len(self.lines) == self._rounds and self._left:
            raise _Enough
