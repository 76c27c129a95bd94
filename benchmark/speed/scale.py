"""How rounds, memory and checkpoints grow with the clients of a run, where all of them keep something.

Each measurement has a process of its own. Before it all clients get rows in the method's stores, as if each
had taken part, and rounds in which everyone takes part are left out: one of 10,000 clients is as long as a
thousand others. Of a method in stages the last one is measured.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import find_setting
from pfl_benchmark.datasets.noise import noise
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.checkpoints import Checkpoints
from pfl_benchmark.engine.client_memory import ClientMemory
from pfl_benchmark.engine.clients import chunks
from pfl_benchmark.engine.hooks import Hooks
from pfl_benchmark.engine.params import expand
from pfl_benchmark.engine.rounds import mean_weights
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.records.scratch import scratch
from pfl_benchmark.records.writer import RunRecord
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.speed.tables import Row
from pfl_benchmark.speed.work import CELLS, COHORT, peak_memory, processes

METHODS = ("fedavg", "fedper", "ditto", "fedala", "ppfe")
BUDGET = 2**30  # bytes of rows in memory, unless --client-memory says otherwise
_SAMPLES, _TESTED = 10, 2  # of a client


@dataclass(frozen=True)
class Crowd:
    """A method with so many clients, ten of whom take part in a round."""

    cell: str
    algo: str
    clients: int
    rounds: int
    execution: Execution


def grown(crowds: Iterable[Crowd]) -> Iterator[Row]:
    """The figures of each, in turn."""
    for crowd in crowds:
        with processes(["crowd"]) as places:
            yield places["crowd"].submit(_measure, crowd).result()


# -- in a process of its own ------------------------------------------------------------------------------


def _measure(crowd: Crowd) -> Row:
    config = RunConfig(
        algo=crowd.algo,
        **{
            **find_setting(CELLS[crowd.cell]).values, "augment": False, "clients": crowd.clients,
            "participation": COHORT / crowd.clients, "samples_per_client": _SAMPLES,
            "test_samples_per_client": _TESTED, "local_epochs": 1, "eval_every": 0,
        },
    )  # fmt: skip
    data = noise(config.dataset, 12 * _SAMPLES * (crowd.clients // 10 + 10))
    prepared = prepare(resolve(config), crowd.execution, data)
    budget = BUDGET if crowd.execution.client_memory is None else crowd.execution.client_memory
    with scratch() as root:
        record = RunRecord(root, config, config.algo)
        record.folder.mkdir()
        with ClientMemory(record.folder, budget).used():
            figures = _rounds(prepared.make(config.rounds), record, crowd.rounds)
    executor = prepared.resolved.executor
    prepared.task.executor.close()
    about: dict[str, Any] = {"cell": crowd.cell, "method": crowd.algo, "executor": executor}
    peak = peak_memory(prepared.task.data.device)
    return {**about, "crowd": crowd.clients, "clients": COHORT, **figures, "peak_memory": peak}


def _rounds(algorithm: Algorithm, record: RunRecord, rounds: int) -> Row:
    """Medians over rounds of the last stage, with a checkpoint after each."""
    hooks = Hooks(algorithm)
    last = hooks.kind(algorithm.task.rounds).stage
    checkpoints = Checkpoints(record)
    seconds, work, saved, begun = [], [], [], False
    for number in range(1, algorithm.task.rounds + 1):
        algorithm.start_round(number)
        kind = hooks.kind(number)
        if kind.stage == last and not kind.full_participation:
            if not begun:
                begun = True
                _fill(algorithm)
                _train(algorithm, hooks, number)  # what is set up at first use is not timed
                checkpoints.save(algorithm.state())
                checkpoints.save(algorithm.state())
                continue
            started, cpu = time.perf_counter(), time.process_time()
            _train(algorithm, hooks, number)
            seconds.append(time.perf_counter() - started)
            work.append(time.process_time() - cpu)
            saved.append(checkpoints.save(algorithm.state()).nbytes)
            if len(saved) == rounds:
                break
        algorithm.finish_round(number)
    return {
        "rounds": len(saved),
        "seconds": statistics.median(seconds),
        "cpu_seconds": statistics.median(work),
        "checkpoint_bytes": max(saved),
    }


def _fill(algorithm: Algorithm) -> None:
    for clients in chunks(range(algorithm.task.data.clients)):
        for store in ClientMemory.current().stores:
            store.scatter(clients, expand(store.initial, len(clients)))


def _train(algorithm: Algorithm, hooks: Hooks, number: int) -> None:
    """A round as the round loop has it, without its checks and figures."""
    cohort = algorithm.task.schedule.cohort(number, full=False)
    message, aggregator = hooks.message(cohort, number), hooks.aggregator()
    outcome = algorithm.task.executor.train(hooks.begin(cohort, message, number))
    upload = hooks.upload(outcome)
    hooks.add(aggregator, cohort, upload, mean_weights(algorithm, cohort))
    hooks.keep(outcome, upload)
    hooks.aggregate(aggregator)
