"""Whole runs: their seconds, and many of them side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from typing import Any

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import find_setting
from pfl_benchmark.engine.precision import precision
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.experiment.unrecorded import Quiet, run_unrecorded
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.speed.workload import made_dataset

__all__ = ["side_by_side", "whole_runs"]

_START_SECONDS = 180  # that processes may take to get ready


def _run(algo: str, setting: str, rounds: int, execution: Execution, seed: int = 0) -> dict[str, Any]:
    """One run on random images, records and evaluations included; returns its summary."""
    values = {**find_setting(setting).values, "augment": False, "rounds": rounds, "seed": seed}
    resolved = resolve(RunConfig(algo=algo, **values))
    prepared = prepare(resolved, execution, made_dataset(resolved.config))
    try:
        with precision(execution.tf32):
            return run_unrecorded(prepared.make(rounds), Quiet())
    finally:
        prepared.task.executor.close()


def whole_runs(execution: Execution, setting: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Seconds of whole runs from the first round to the record; data and start-up not counted."""
    for algo in ("fedavg", "ppfe"):
        _run(algo, setting, 4, execution)  # what is set up at first use is not timed
        summary = _run(algo, setting, rounds, execution)
        yield {
            "cell": setting,
            "method": algo,
            "executor": execution.executor,
            "rounds": rounds,
            **{name: summary[name] for name in ("seconds", "samples", "samples_per_second")},
        }


def side_by_side(
    execution: Execution, setting: str, rounds: int, count: int, jobs: int
) -> Iterator[dict[str, Any]]:
    """Seconds of `count` runs one after the other, and of as many shared among `jobs` processes.

    The processes are started and warmed up before; each run has a seed of its own.
    """
    context, seconds = get_context("spawn"), {}
    for workers in (1, jobs):
        with ProcessPoolExecutor(workers, context, _begin, (context.Barrier(workers),)) as pool:
            _finish([pool.submit(_warm_up, setting, execution) for _ in range(workers)])
            started = time.perf_counter()
            _finish([pool.submit(_run, "fedavg", setting, rounds, execution, seed) for seed in range(count)])
            seconds[workers] = time.perf_counter() - started
        yield {
            "cell": setting,
            "method": "fedavg",
            "executor": execution.executor,
            "rounds": rounds,
            "runs": count,
            "jobs": workers,
            "seconds": seconds[workers],
            "times_one": seconds[1] / seconds[workers],
        }


def _finish(futures: list[Future[Any]]) -> None:
    for future in futures:
        future.result()


# -- in a process of many ---------------------------------------------------------------------------------

_ready: Barrier


def _begin(barrier: Barrier) -> None:
    global _ready
    _ready = barrier
    os.environ["OMP_NUM_THREADS"] = "1"


def _warm_up(setting: str, execution: Execution) -> None:
    """Make a short run, then wait for the other processes, so that each makes exactly one."""
    _run("fedavg", setting, 2, execution)
    _ready.wait(_START_SECONDS)
