"""Growth with the cohort, and with the number of clients that sit out."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.engine.precision import precision
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import Prepared
from pfl_benchmark.speed.clock import peak_memory, timed, wait_for
from pfl_benchmark.speed.workload import COHORT, local_call, ready

__all__ = ["COHORTS", "CROWDS", "cohorts", "crowds"]

COHORTS = (1, 2, 5, 10, 20, 50, 100)
CROWDS = (100, 1_000, 10_000)


def cohorts(
    execution: Execution,
    repeats: int,
    cell: str,
    sizes: tuple[int, ...] = COHORTS,
    executors: Iterable[str] = tuple(EXECUTORS),
) -> Iterator[dict[str, Any]]:
    """Seconds of a local call as the cohort grows."""
    for name in executors:
        prepared = ready(cell, name, execution, clients=max(sizes))
        with precision(execution.tf32), contextlib.closing(prepared.task.executor):
            results = timed({size: local_call(prepared, list(range(size))) for size in sizes}, repeats)
        for size, (seconds, samples) in results.items():
            yield {
                "cell": cell,
                "executor": name,
                "clients": size,
                "seconds": seconds,
                "samples_per_second": samples / seconds,
            }


def crowds(execution: Execution, repeats: int, sizes: tuple[int, ...] = CROWDS) -> Iterator[dict[str, Any]]:
    """Seconds of a FedPer round with ten participants as the number of clients grows, on digits."""
    for size in sizes:
        if execution.pick_device().type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        prepared = ready(
            "digits", execution.executor, execution, "fedper", clients=size, samples_per_client=20,
            test_samples_per_client=4, participation=COHORT / size,
        )  # fmt: skip
        rounds = ordinary_rounds(prepared)
        with precision(execution.tf32), contextlib.closing(prepared.task.executor):
            seconds, samples = timed({size: lambda: next(rounds)}, 5 * repeats)[size]  # noqa: B023
        yield {
            "cell": "digits",
            "executor": prepared.resolved.executor,
            "crowd": size,
            "clients": COHORT,
            "seconds": seconds,
            "samples_per_second": samples / seconds,
            "peak_memory": peak_memory(prepared.task.data.device),
        }


def ordinary_rounds(prepared: Prepared) -> Iterator[int]:
    """Carry out round after round with a cohort each; yields the samples processed."""
    algorithm, executor = prepared.make(2**30), prepared.task.executor
    for number in itertools.count(1):
        cohort = prepared.task.schedule.cohort(number, full=False)
        outcome = executor.train(algorithm.begin(cohort, algorithm.message(cohort, number), number))
        algorithm.keep(outcome)
        wait_for(prepared.task.data.device)
        yield outcome.samples
