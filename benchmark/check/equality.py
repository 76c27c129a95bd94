"""Compares an executor with the plain loop, on this device, for every method and stage.

A small run of each method is carried out by the loop; everything that the method asks of it (local training,
forward passes) is asked of the other executor too, from the same start, and the results are compared. So
differences cannot grow from round to round, and every call of a run counts by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import Any

from torch import Tensor

from pfl_benchmark.algorithms import ALGORITHMS, needed
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.data import Part
from pfl_benchmark.engine.executors import EXECUTORS, Executor
from pfl_benchmark.engine.local import LocalCall, LocalResult
from pfl_benchmark.engine.precision import precision
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.experiment.unrecorded import Quiet, random_images, run_unrecorded
from pfl_benchmark.models import Network, Params
from pfl_benchmark.resolve.run import Run, resolve

# Of the largest entry of a tensor. Rounding differs between executors, and where two inputs of a pooling
# window are all but equal it decides which one learns. So single trainings may differ visibly, and most may
# not: the first limit is for forward passes and for the typical training, the second for any.
TOLERANCE = 1e-4
OUTLIER = 0.05

# Every method, and what PPFE's own variants add: masks and other ways to reduce.
VARIANTS: tuple[tuple[str, str | None], ...] = (
    *((name, None) for name in sorted(ALGORITHMS)),
    ("ppfe", "sparse"),
    ("ppfe", "no-reduction"),
)

# Clients of unequal size, batches that do not divide them, a short last batch; a round is three clients.
PROTOCOL: dict[str, Any] = {
    "partition": "dirichlet",
    "dirichlet": 0.5,
    "clients": 6,
    "participation": 0.5,
    "samples_per_client": 24,
    "test_samples_per_client": 10,
    "rounds": 8,  # two for each of four stages
    "local_epochs": 2,
    "batch_size": 7,
    "lr": 0.02,
    "eval_every": 2,
}


def difference(expected: object, found: object) -> float:
    """Largest difference of two nested containers of tensors, each relative to its tensor's largest entry.

    Infinite where shapes differ or a value is not finite.
    """
    if isinstance(expected, Tensor):
        if not isinstance(found, Tensor) or expected.shape != found.shape:
            return math.inf
        if not expected.numel():
            return 0.0
        largest = float((expected.double() - found.double()).abs().max())
        relative = largest / max(float(expected.abs().max()), 1e-6)
        return math.inf if math.isnan(relative) else relative
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        expected, found = [*expected.values()], [found[name] for name in expected]
    assert isinstance(expected, Sequence)
    assert isinstance(found, Sequence)
    if len(expected) != len(found):
        return math.inf
    return max((difference(a, b) for a, b in zip(expected, found, strict=True)), default=0.0)


@dataclass
class Seen:
    """Differences in a stage, one a local training and one a forward pass."""

    trainings: list[float] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)
    repeatable: bool = True

    @property
    def typical(self) -> float:
        """Of the trainings; of two the smaller."""
        return median_low(self.trainings or [0.0])

    @property
    def largest(self) -> float:
        return max([*self.trainings, *self.passes], default=0.0)

    @property
    def equal(self) -> bool:
        exact = max([self.typical, *self.passes])
        return exact <= TOLERANCE and self.largest <= OUTLIER


@dataclass
class Twins:
    """Two executors that are given the same work; the first one's results are used."""

    first: Executor
    second: Executor
    stage: int = 1
    seen: dict[int, Seen] = field(default_factory=dict)

    def _seen(self) -> Seen:
        return self.seen.setdefault(self.stage, Seen())

    def train(self, call: LocalCall) -> LocalResult:
        """Train by both."""
        expected, found = self.first.train(call), self.second.train(call)
        seen, counted = self._seen(), (expected.samples, expected.steps) == (found.samples, found.steps)
        ours, theirs = ([outcome.models, outcome.loss, outcome.features] for outcome in (expected, found))
        seen.trainings.append(difference(ours, theirs) if counted else math.inf)
        # Resuming a run bit by bit needs calls that give the same bits whenever they are made.
        again = self.second.train(call)
        seen.repeatable &= difference([found.models, found.loss], [again.models, again.loss]) == 0
        return expected

    def forward(
        self, network: Network, params: Params, clients: Sequence[int], part: Part, stop: int | None = None
    ) -> list[Tensor]:
        """Evaluate by both."""
        expected, found = (e.forward(network, params, clients, part, stop) for e in (self.first, self.second))
        self._seen().passes.append(difference(expected, found))
        return expected

    def close(self) -> None:
        self.first.close()
        self.second.close()


def equality(
    execution: Execution,
    cells: Iterable[str],
    executor: str = "stacked",
    variants: Iterable[tuple[str, str | None]] = VARIANTS,
    **changes: Any,
) -> Iterator[dict[str, Any]]:
    """Compare an executor with the loop on every variant (method and ablation), stage by stage.

    Args:
        cells: datasets whose networks are used.
        changes: fields of the configuration, such as ``dropout=0.3``.
    """
    for cell in cells:
        for algo, ablation in variants:
            config = RunConfig(algo=algo, dataset=cell, **{**PROTOCOL, **needed(algo), **changes})
            resolved = resolve(config, ablation=ablation)
            if EXECUTORS[executor].unable(resolved.network, resolved.method.not_stackable):
                continue  # `auto` takes another one
            with precision(execution.tf32):
                seen = _compared(resolved, execution, executor)
            for stage, found in sorted(seen.items()):
                yield {
                    "cell": cell,
                    "method": algo if ablation is None else f"{algo} {ablation}",
                    "stage": stage,
                    "executor": executor,
                    "calls": len(found.trainings),
                    "passes": len(found.passes),
                    "typical": min(found.typical, 1e30),  # JSON knows no infinity
                    "difference": min(found.largest, 1e30),
                    "equal": found.equal,
                    "repeatable": found.repeatable,
                }


class _Stages(Quiet):
    """Tells the twins which stage the next calls belong to: that of the round after the last finished one."""

    def __init__(self, twins: Twins, algorithm: Algorithm, rounds: int) -> None:
        self._twins, self._algorithm, self._rounds = twins, algorithm, rounds

    def round(self, line: Mapping[str, Any]) -> None:
        self._twins.stage = self._algorithm.kind(min(line["round"] + 1, self._rounds)).stage


def _compared(resolved: Run, execution: Execution, executor: str) -> dict[int, Seen]:
    config = resolved.config
    prepared = prepare(resolved, replace(execution, executor="loop"), random_images(config))
    task = prepared.task
    twins = Twins(task.executor, EXECUTORS[executor](config, task.data, task.streams))
    # The method and the engine see the twins in the place of an executor, and only call its two functions.
    prepared = replace(prepared, task=replace(task, executor=twins))  # type: ignore[arg-type]
    algorithm = prepared.make(config.rounds)
    try:
        run_unrecorded(algorithm, _Stages(twins, algorithm, config.rounds))
    finally:
        twins.close()
    return twins.seen
