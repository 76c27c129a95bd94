"""Whether the code that is here gives the figures of a finished record: rounds are run again and compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.engine.budget import Plan, plan_rounds
from pfl_benchmark.engine.executors import EXECUTORS, choose_executor
from pfl_benchmark.engine.executors.threads import available_cores
from pfl_benchmark.engine.precision import precision
from pfl_benchmark.engine.rounds import Diverged, Observer, run
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import Prepared, prepare
from pfl_benchmark.records.environment import deciding, environment
from pfl_benchmark.records.record import Record, read_record
from pfl_benchmark.records.same_data import Source, data_for, source_of
from pfl_benchmark.records.scratch import scratch
from pfl_benchmark.records.seal import BIT_EQUAL, DIFFERENT, DRIFTED, WITHIN_TOLERANCE, write_verdict
from pfl_benchmark.records.sources import same_code
from pfl_benchmark.records.writer import RunRecord
from pfl_benchmark.resolve.code import code_of, installed_plugins
from pfl_benchmark.resolve.run import Run

ROUNDS = 3  # that are run again if nothing else is asked for

# Counts and words must be the same. Of real numbers |recorded - found| / max(1, |recorded|) may be so much,
# since executors, hardware and libraries sum in different orders.
TOLERANCE = 1e-3

# Rounding grows with every step, in some runs faster than in others, so no fixed tolerance would do for
# records of other machines. A control run begins with weights changed by as little as rounding changes them,
NUDGE = 1e-6
# and the record may be as many times as far away as that run was until the same round.
DRIFT = 10.0

_TIMED = ("seconds", "seconds_closing", "samples_per_second")
_HISTORY = ("shared_rounds", "resumed", "notes", "environment", "origins", "saved")
_SHOWN = 10  # differences that are kept one by one

Figures = dict[tuple[str, str], Any]
"""What is compared, by place (``round 3``, ``client 0``, ``summary``, ``diagnostics``) and field."""


@dataclass(frozen=True)
class Gap:
    """A figure that is not the recorded one."""

    place: str
    field: str
    recorded: Any
    found: Any  # None where there is no such figure any more
    excess: float  # the difference, in tolerances; infinite where the figure has to be the same

    def __str__(self) -> str:
        return f"{self.place}, {self.field}: {self.recorded} recorded, {self.found} found"

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("place", "field", "recorded", "found")}


@dataclass(frozen=True)
class Verdict:
    """What came of running a record's first rounds again."""

    record: Record
    rounds: int  # that were compared; with all of the run's also what it ended with
    figures: int  # how many were compared
    gaps: Sequence[Gap]  # all that are not exactly the recorded ones, in the record's order
    environment: Mapping[str, Any]  # of this process, as in a summary
    drift: Mapping[str, float] = field(default_factory=dict)  # of the control run, in tolerances, by place

    @property
    def verdict(self) -> str:
        if not self.gaps:
            return BIT_EQUAL
        if not any(gap.excess > 1 for gap in self.gaps):
            return WITHIN_TOLERANCE
        return DIFFERENT if self.beyond else DRIFTED

    @property
    def beyond(self) -> list[Gap]:
        """The differences that neither the tolerance nor the control run covers."""
        whole = self.drift.get("", 0.0)
        return [gap for gap in self.gaps if gap.excess > max(1, DRIFT * self.drift.get(gap.place, whole))]

    @property
    def largest(self) -> Gap | None:
        """The difference of most tolerances, the first of several."""
        return max(self.gaps, key=lambda gap: gap.excess, default=None)

    @property
    def elsewhere(self) -> list[str]:
        """What the floats depend on, besides the code, and was otherwise: ``executor threads, here loop``."""
        then, now = (deciding(found) for found in (self.record.summary["environment"], self.environment))
        return [
            f"{name} {then.get(name, 'unknown')}, here {now.get(name, 'unknown')}"
            for name in dict.fromkeys((*then, *now))
            if name != "code" and then.get(name) != now.get(name)
        ]

    @property
    def suspicious(self) -> bool:
        """Whether figures differ at all, though code and all that floats depend on are the same."""
        same = same_code(self.record.summary["environment"].get("code"), self.environment["code"])
        return bool(self.gaps) and same and not self.elsewhere

    def to_dict(self, by: str = "") -> dict[str, Any]:
        """As it stands in verified.json; `by`: who verified, if that is to be on record."""
        return {
            **({"by": by} if by else {}),
            "verdict": self.verdict,
            "rounds": self.rounds,
            "of": len(self.record.rounds),
            "figures": self.figures,
            "unequal": len(self.gaps),
            "beyond_tolerance": len(self.beyond),
            **({"drift": self.drift[""]} if self.drift else {}),
            "first_beyond": [gap.to_dict() for gap in self.beyond[:_SHOWN]],
            "largest": self.largest.to_dict() if self.largest else None,
            "code": self.environment["code"],
            "environment": dict(self.environment),
            "record_digest": self.record.digest,
        }

    def save(self, by: str = "") -> None:
        """Keep it in the record's folder, as `to_dict`; UserError where that is impossible."""
        write_verdict(self.record.folder, self.to_dict(by))


def load_data(records: Sequence[Record], data_dir: Path | None) -> dict[Source, datasets.Dataset]:
    """The datasets of some records, each read once; UserError where one is not here: none is downloaded."""
    wanted = dict.fromkeys(source_of(record.config) for record in records)
    return {
        (name, width): datasets.load(name, data_dir, download=False, embedding=width)
        for name, width in wanted
    }


def execution_for(record: Record, run: Run, asked: Execution) -> Execution:
    """How to run a record again: as asked, and where that leaves a choice as the record was made."""
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
        if plan.rounds != len(record.rounds):
            gap = Gap("plan", "rounds", len(record.rounds), plan.rounds, math.inf)
            return Verdict(record, 0, 1, [gap], surroundings)
        with precision(execution.tf32):
            found = _again(prepared, plan, rounds, observer, surroundings)
            if isinstance(found, Gap):
                line = record.rounds[int(found.place.removeprefix("round ")) - 1]
                gap = replace(found, recorded=line["loss"])
                return Verdict(record, line["round"], len(line), [gap], surroundings)
            recorded = _figures(record.rounds[:rounds], record if rounds == plan.rounds else None)
            verdict = Verdict(record, rounds, len(recorded), _gaps(recorded, found), surroundings)
            if verdict.verdict != DIFFERENT or not verdict.elsewhere:
                return verdict
            control = _again(_nudged(prepared), plan, rounds, observer, surroundings)
            drift = {} if isinstance(control, Gap) else _drift(_gaps(found, control), rounds)
            return replace(verdict, drift=drift)
    finally:
        prepared.task.executor.close()


def _again(
    prepared: Prepared, plan: Plan, rounds: int, observer: Observer, surroundings: Mapping[str, Any]
) -> Figures | Gap:
    """The figures of the first rounds of a run; a gap where training diverges."""
    watched, whole = _Watched(observer, rounds), rounds == plan.rounds
    with scratch() as root:
        made = RunRecord(root, prepared.config, prepared.config.algo)
        made.folder.mkdir()
        made.begin({"split": {"checksum": prepared.split.checksum}})
        try:
            run(prepared.make(plan.rounds), plan, made, None, watched, surroundings, math.inf)
        except _Enough:
            pass
        except Diverged as error:
            return Gap(f"round {len(watched.lines) + 1}", "loss", None, str(error).split(";")[0], math.inf)
        return _figures(watched.lines, read_record(made.folder) if whole else None)


def _nudged(prepared: Prepared) -> Prepared:
    """The run with initial weights that differ by `NUDGE` of themselves, up or down."""
    rng = np.random.default_rng(0)
    initial = {
        name: tensor * torch.from_numpy(1 + NUDGE * rng.choice([-1.0, 1.0], tensor.shape)).to(tensor)
        for name, tensor in prepared.task.initial.items()
    }
    return replace(prepared, task=replace(prepared.task, initial=initial))


def _drift(gaps: Sequence[Gap], rounds: int) -> dict[str, float]:
    """The largest gap of real numbers until each round, by place, and of all (``""``)."""
    real = [gap for gap in gaps if math.isfinite(gap.excess)]
    drift, largest = dict[str, float](), 0.0
    for place in (f"round {number}" for number in range(1, rounds + 1)):
        drift[place] = largest = max([largest, *(gap.excess for gap in real if gap.place == place)])
    return {**drift, "": max([largest, *(gap.excess for gap in real)])}


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


def _figures(lines: Sequence[Mapping[str, Any]], record: Record | None) -> Figures:
    """The figures of some rounds and, if `record` is given, of what that says of the whole run."""
    parts = [(f"round {line['round']}", line) for line in lines]
    if record is not None:
        parts += [(f"client {number}", client) for number, client in enumerate(_clients(record))]
        parts += [("summary", record.summary), ("diagnostics", record.diagnostics)]
    return {
        (place, field): value
        for place, part in parts
        for name, content in part.items()
        if name not in (*_TIMED, *_HISTORY)
        for field, value in _leaves(name, content)
    }


def _clients(record: Record) -> Iterator[dict[str, Any]]:
    names = ("test_samples", "accuracy", "loss", "macro_f1", "auc")
    parts = [(record.test_samples, record.accuracies, record.losses, record.macro_f1, record.auc)]
    if (new := record.newcomers) is not None:
        parts.append((new.total, new.accuracies, new.loss, new.macro_f1, new.auc))
    for columns in parts:
        known = {name: column for name, column in zip(names, columns, strict=True) if column is not None}
        for values in zip(*(column.tolist() for column in known.values()), strict=True):
            # Without an AUC, a client has NaN, which would differ from itself.
            yield {name: None if value != value else value for name, value in zip(known, values, strict=True)}


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """``stages[0].clients.beta[3]`` and its value, for all that is in `value`."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner)
    elif isinstance(value, (list, tuple)):
        for position, inner in enumerate(value):
            yield from _leaves(f"{name}[{position}]", inner)
    else:
        yield name, value


def _gaps(recorded: Figures, found: Figures) -> list[Gap]:
    """What is not the same; what records did not tell yet does not count."""
    return [
        Gap(*key, value, found.get(key), _excess(value, found.get(key)))
        for key, value in recorded.items()
        if found.get(key) != value
    ]


def _excess(recorded: Any, found: Any) -> float:
    """The difference of two values in tolerances."""
    if not isinstance(recorded, float) or not isinstance(found, float):
        return math.inf
    return abs(recorded - found) / (TOLERANCE * max(1.0, abs(recorded)))
