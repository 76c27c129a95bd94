"""Growth with the cohort, and with the number of clients that sit out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from benchmark.engine.executors import EXECUTORS
from benchmark.engine.precision import precision
from benchmark.experiment.execution import Execution
from benchmark.experiment.runner import Prepared
from benchmark.speed.clock import device_name, forget_peak, peak_memory, timed, wait_for
from benchmark.speed.workload import COHORT, local_call, ready

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
        calls = {str(size): local_call(prepared, list(range(size))) for size in sizes}
        with precision(execution.tf32):
            results = timed(calls, repeats)
        for size, (seconds, samples) in results.items():
            yield {
                "part": "cohorts",
                "cell": cell,
                "executor": name,
                "device": device_name(prepared.task.data.device),
                "clients": int(size),
                "seconds": seconds,
                "samples_per_second": samples / seconds,
            }
        prepared.task.executor.close()


def crowds(execution: Execution, repeats: int, sizes: tuple[int, ...] = CROWDS) -> Iterator[dict[str, Any]]:
    """Seconds of a FedPer round with ten participants as the number of clients grows, on digits."""
    for size in sizes:
        forget_peak(execution.pick_device())
        prepared = ready(
            "digits", execution.executor, execution, "fedper", clients=size, samples_per_client=20,
            test_samples_per_client=4, participation=COHORT / size,
        )  # fmt: skip
        rounds = ordinary_rounds(prepared)
        with precision(execution.tf32):
            ((seconds, samples),) = timed({"round": lambda: next(rounds)}, 5 * repeats).values()  # noqa: B023
        yield {
            "part": "crowds",
            "cell": "digits",
            "executor": prepared.executor_name,
            "device": device_name(prepared.task.data.device),
            "crowd": size,
            "clients": COHORT,
            "seconds": seconds,
            "samples_per_second": samples / seconds,
            "peak_memory": peak_memory(prepared.task.data.device),
        }
        prepared.task.executor.close()


def ordinary_rounds(prepared: Prepared) -> Iterator[int]:
    """Carry out round after round with a cohort each; yields the samples processed."""
    algorithm, executor = prepared.make(2**30), prepared.task.executor
    for number in itertools.count(1):
        cohort = prepared.schedule.cohort(number, full=False)
        outcome = executor.train(algorithm.begin(cohort, algorithm.message(cohort, number), number))
        algorithm.keep(outcome)
        wait_for(prepared.task.data.device)
        yield outcome.samples
