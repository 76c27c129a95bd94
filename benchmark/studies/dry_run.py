"""What is known of a run before its data are read: its method on noise, and what its budget allows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import cache
from typing import Self

import numpy as np
import torch

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.api import Split
from pfl_benchmark.datasets.noise import noise
from pfl_benchmark.datasets.partitioners import Partitioner
from pfl_benchmark.engine.algorithm import Algorithm, RunContext
from pfl_benchmark.engine.budget import Plan, plan_rounds
from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.engine.exits import refuse_exit
from pfl_benchmark.engine.schedule import Schedule
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.errors import UserError
from pfl_benchmark.models.frozen import begin
from pfl_benchmark.resolve.run import method_of


@dataclasses.dataclass(frozen=True)
class DryRun:
    """Everything of a run but its data and rounds; `make` builds the method for a number of rounds.

    As a context it closes the executor of its task at the end; `refuse_exit` says what else it does.
    """

    task: RunContext
    make: Callable[[int], Algorithm]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.task.executor.close()
        refuse_exit(self.task.config.algo, error)

    def plan(self) -> Plan:
        """The number of rounds that its budget allows, if all clients have equally many samples.

        Raises:
            UserError: not even one.
        """
        return plan_rounds(self.task.config, self.make)


def dry_run(
    config: RunConfig, samples: int, device: torch.device | None = None, executor: str = "loop"
) -> DryRun:
    """A run on noise, of which all clients share `samples` samples; no dataset is needed.

    The executor of its task is to be closed (see `DryRun`).
    """
    streams, (method, hyper, network) = Streams(config.seed), method_of(config)
    device = device or torch.device("cpu")
    network, initial = begin(network, streams.get("init"), device)
    rows = tuple(np.arange(samples) for _ in range(config.clients))
    dataset = noise(config.dataset, samples, config.embedding)
    data = FederatedData(dataset, Split(rows, rows, new=config.new_count), device)
    task = RunContext(
        config,
        network,
        data,
        streams,
        Schedule(data.clients, config.participation, streams),
        config.rounds,
        initial,
        EXECUTORS[executor](config, data, streams),
    )
    return DryRun(task, lambda rounds: method(dataclasses.replace(task, rounds=rounds), hyper))


def canonical(config: RunConfig) -> RunConfig:
    """The same run with the fewest flags: without ``--eval-adapted`` and ``--budget`` where these do nothing.

    A budget sets nothing but the number of rounds: one that comes to ``--rounds`` is the run under equal
    rounds. Where it allows fewer or more, nothing can be taken over: the last round is another
    one then, with everyone unless --last-round says otherwise.
    """
    if config.eval_adapted and not adapts(config):
        config = dataclasses.replace(config, eval_adapted=False)
    # Samples are known in advance if clients have equally many.
    known = config.partitioner.sizes == Partitioner.sizes and not config.validation
    known = known and not any(shift.resizes for shift in config.shifts)
    if config.budget == "rounds" or (config.budget == "samples" and not known):
        return config
    if _allowed(dataclasses.replace(config, seed=0).identity) != config.rounds:
        return config
    budget = ("budget", "byte_budget", "sample_budget", "compute_cap")
    return dataclasses.replace(config, **{name: getattr(RunConfig, name) for name in budget})


def adapts(config: RunConfig) -> bool:
    """Whether the method of a run fine-tunes clients before the final evaluation."""
    return _adapts(dataclasses.replace(config, seed=0).identity)


@cache
def _adapts(identity: str) -> bool:
    config = RunConfig.from_dict(json.loads(identity))
    with dry_run(config, 1) as dry:
        return bool(dry.make(config.rounds).adaptation())


@cache
def _allowed(identity: str) -> int:
    """The number of rounds that the budget of a configuration allows; 0: not one, which running it tells."""
    config = RunConfig.from_dict(json.loads(identity))
    with dry_run(config, config.samples_per_client) as dry:
        try:
            return dry.plan().rounds
        except UserError:
            return 0
