"""Is an executor equal to the plain loop, on this device, for every method and stage?

A small run of each method is carried out by the loop; everything that the method asks of it (local training,
forward passes) is asked of the other executor too, from the same start, and the results are compared. So
differences cannot grow from round to round, and every call of a run counts by itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from algorithms import ALGORITHMS
from benchmark.engine.algorithm import Algorithm
from benchmark.engine.budget import Plan
from benchmark.engine.config import RunConfig
from benchmark.engine.data import Part
from benchmark.engine.executors import EXECUTORS, Executor
from benchmark.engine.local import LocalCall, Outcome
from benchmark.engine.precision import precision
from benchmark.engine.records import RunRecord
from benchmark.engine.rounds import run
from benchmark.models import Network, Params
from benchmark.runner import Execution, check, prepare, with_hyper
from benchmark.speed.clock import device_name
from benchmark.speed.workload import made_dataset

__all__ = ["TOLERANCE", "VARIANTS", "Twins", "difference", "equality"]

TOLERANCE = 1e-3  # of the largest entry of a tensor

# Every method, and what PPFE's own variants add: masks and other ways to reduce.
VARIANTS: tuple[tuple[str, str | None], ...] = (
    *((name, None) for name in sorted(ALGORITHMS)),
    ("ppfe", "sparse"),
    ("ppfe", "no-reduction"),
)

# Clients of unequal size, batches that do not divide them, a short last batch; a round is three clients.
_PROTOCOL: dict[str, Any] = {
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
            return float("inf")
        if not expected.numel():
            return 0.0
        largest = float((expected.double() - found.double()).abs().max())
        size = float(expected.abs().max())
        relative = largest / max(size, 1e-6)
        return relative if relative == relative else float("inf")
    if isinstance(expected, Mapping):
        assert isinstance(found, Mapping)
        return max((difference(value, found[key]) for key, value in expected.items()), default=0.0)
    assert isinstance(expected, Sequence)
    assert isinstance(found, Sequence)
    if len(expected) != len(found):
        return float("inf")
    return max((difference(a, b) for a, b in zip(expected, found, strict=True)), default=0.0)


@dataclass
class _Seen:
    """What was compared in a stage."""

    calls: int = 0
    passes: int = 0
    largest: float = 0.0
    repeatable: bool = True


@dataclass
class _Observer:
    """Tells the twins which stage the next calls belong to: the one after the last finished round."""

    tell: Callable[[int], None]

    def start(self, rounds: int, done: int) -> None:
        self.tell(1)

    def round(self, line: Mapping[str, Any]) -> None:
        self.tell(line["round"] + 1)


@dataclass
class Twins:
    """Two executors that are given the same work; the first one's results are used."""

    first: Executor
    second: Executor
    stage: int = 1
    seen: dict[int, _Seen] = field(default_factory=dict)

    def _compare(self, expected: object, found: object) -> _Seen:
        seen = self.seen.setdefault(self.stage, _Seen())
        seen.largest = max(seen.largest, difference(expected, found))
        return seen

    def train(self, call: LocalCall) -> Outcome:
        """Train by both."""
        expected, found = self.first.train(call), self.second.train(call)
        if (expected.samples, expected.steps) != (found.samples, found.steps):
            self._compare([], [found.loss])
        seen = self._compare(
            [expected.models, expected.loss, expected.features], [found.models, found.loss, found.features]
        )
        seen.calls += 1
        # Resuming a run bit by bit needs calls that give the same bits whenever they are made.
        again = self.second.train(call)
        seen.repeatable &= difference([found.models, found.loss], [again.models, again.loss]) == 0
        return expected

    def forward(
        self, network: Network, params: Params, clients: Sequence[int], part: Part, stop: int | None = None
    ) -> list[Tensor]:
        """Evaluate by both."""
        expected, found = (e.forward(network, params, clients, part, stop) for e in (self.first, self.second))
        self._compare(expected, found).passes += 1
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
    device = execution.pick_device()
    for cell in cells:
        for algo, ablation in variants:
            config = RunConfig(algo=algo, dataset=cell, **{**_PROTOCOL, **changes})
            config = with_hyper(config, {}, ablation)
            check(config)
            with precision(execution.tf32):
                seen = _compared(config, execution, executor)
            for stage, found in sorted(seen.items()):
                yield {
                    "part": "equality",
                    "cell": cell,
                    "method": algo if ablation is None else f"{algo} {ablation}",
                    "stage": stage,
                    "executor": executor,
                    "device": device_name(device),
                    "tf32": execution.tf32,
                    "calls": found.calls,
                    "passes": found.passes,
                    "difference": min(found.largest, 1e30),  # JSON knows no infinity
                    "equal": found.largest <= TOLERANCE,
                    "repeatable": found.repeatable,
                }


def _compared(config: RunConfig, execution: Execution, executor: str) -> dict[int, _Seen]:
    dataset = made_dataset(config.dataset, config.clients, config)
    prepared = prepare(config, replace(execution, executor="loop"), dataset)
    task = prepared.task
    other = EXECUTORS[executor](config, task.data, task.streams)
    twins = Twins(task.executor, other)
    # The method and the engine see the twins in the place of an executor, and only call its two functions.
    prepared = replace(prepared, task=replace(task, executor=twins))  # type: ignore[arg-type]
    algorithm: Algorithm = prepared.make(config.rounds)

    def tell(number: int) -> None:
        twins.stage = algorithm.stage(min(number, config.rounds))

    try:
        with tempfile.TemporaryDirectory() as folder:
            record = RunRecord(Path(folder), config, config.algo)
            record.folder.mkdir()
            run(
                algorithm, prepared.schedule, Plan(config.rounds, "rounds"), record, None, _Observer(tell), {}
            )
    finally:
        twins.close()
    return twins.seen
