"""Whole runs: their seconds, what TF32 saves, and many of them side by side."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from benchmark.config.resolve import resolve
from benchmark.config.settings import find_setting
from benchmark.engine.budget import Plan
from benchmark.engine.config import RunConfig
from benchmark.engine.precision import precision
from benchmark.engine.records import RunRecord
from benchmark.engine.rounds import run
from benchmark.experiment.execution import Execution
from benchmark.experiment.runner import prepare
from benchmark.speed.cells import cells
from benchmark.speed.clock import device_name, seconds_of
from benchmark.speed.workload import made_dataset

__all__ = ["side_by_side", "tf32", "whole_runs"]

_START_SECONDS = 180  # that processes may take to get ready


class _Silent:
    def start(self, rounds: int, done: int) -> None:
        pass

    def round(self, line: Mapping[str, Any]) -> None:
        pass


def _run(algo: str, setting: str, rounds: int, execution: Execution, seed: int = 0) -> dict[str, Any]:
    """One run on random images, records and evaluations included; returns its summary."""
    values = {**find_setting(setting).values, "augment": False, "rounds": rounds, "seed": seed}
    resolved = resolve(RunConfig(algo=algo, **values))
    config = resolved.config
    prepared = prepare(resolved, execution, made_dataset(config.dataset, config.clients, config))
    try:
        with tempfile.TemporaryDirectory() as folder, precision(execution.tf32):
            record = RunRecord(Path(folder), config, algo)
            record.folder.mkdir()
            plan = Plan(rounds, "rounds")
            return run(prepared.make(rounds), prepared.schedule, plan, record, None, _Silent(), {})
    finally:
        prepared.task.executor.close()


def whole_runs(
    execution: Execution, setting: str, rounds: int, algos: tuple[str, ...] = ("fedavg", "ppfe")
) -> Iterator[dict[str, Any]]:
    """Seconds of whole runs from the first round to the record; data and start-up not counted."""
    device = execution.pick_device()
    for algo in algos:
        _run(algo, setting, 4, execution)  # what is set up at first use is not timed
        summary = _run(algo, setting, rounds, execution)
        yield {
            "part": "runs",
            "cell": setting,
            "method": algo,
            "executor": execution.executor,
            "device": device_name(device),
            "rounds": rounds,
            "seconds": summary["seconds"],
            "samples": summary["samples"],
            "samples_per_second": summary["samples_per_second"],
        }


def tf32(
    execution: Execution, repeats: int, cell: str, trainers: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """Seconds of a cohort's local training with and without TF32."""
    for allowed in (False, True):
        rows = cells(replace(execution, tf32=allowed), repeats, [cell], trainers, apart=False)
        for row in rows:
            yield {**row, "part": "tf32"}


# -- many runs at the same time ------------------------------------------------------------------------

_ready: Barrier | None = None


def side_by_side(
    execution: Execution, setting: str, rounds: int, count: int = 20, jobs: int = 4
) -> Iterator[dict[str, Any]]:
    """Seconds of `count` runs one after the other, and of as many shared among `jobs` processes.

    The processes are started and warmed up before; each run has a seed of its own.
    """
    device, seconds = execution.pick_device(), {}
    for workers in (1, jobs):
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(workers)
        with context.Pool(workers, _begin, (barrier,)) as pool:
            warm = [("fedavg", setting, 2, execution)] * workers
            pool.starmap_async(_warm_up, warm, chunksize=1).get(_START_SECONDS)
            tasks = [("fedavg", setting, rounds, execution, seed) for seed in range(count)]
            seconds[workers] = seconds_of(lambda: pool.starmap(_run, tasks, chunksize=1))  # noqa: B023
        yield {
            "part": "side-by-side",
            "cell": setting,
            "method": "fedavg",
            "executor": execution.executor,
            "device": device_name(device),
            "rounds": rounds,
            "runs": count,
            "jobs": workers,
            "seconds": seconds[workers],
            "times_one": seconds[1] / seconds[workers],
        }


def _begin(barrier: Barrier) -> None:
    global _ready
    _ready = barrier
    os.environ["OMP_NUM_THREADS"] = "1"


def _warm_up(algo: str, setting: str, rounds: int, execution: Execution) -> float:
    """Make a short run, then wait for the other processes, so that each makes exactly one."""
    _run(algo, setting, rounds, execution)
    assert _ready is not None
    _ready.wait(_START_SECONDS)
    return time.perf_counter()
