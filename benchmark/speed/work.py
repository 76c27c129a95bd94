"""The work that is timed: rounds of local training on random images, each trainer in a process of its own.

The executor `threads` changes the memory allocator's settings for good and for everything in its process
(`engine.executors.allocator`), and the peak of memory is the process's. Waiting for its turn a process does
nothing, so turns are as close as within one process.
"""

from __future__ import annotations

import contextlib
import itertools
import resource
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import find_setting
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.engine.precision import precision
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import Prepared, prepare
from pfl_benchmark.experiment.unrecorded import random_images
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.speed.plain import PlainTrainer

COHORT = 10
EPOCHS = 5  # local ones of the paper: with fewer, what a call costs once weighs too much
PLAIN = "plain"
TRAINERS = (PLAIN, *EXECUTORS)
CELLS = {"cifar10": "cifar10-s2", "digits": "digits-s2"}  # settings


@dataclass(frozen=True)
class Work:
    """Rounds of a method in the setting of a cell, trained by an executor or by the plain trainer."""

    cell: str
    trainer: str
    execution: Execution
    epochs: int = EPOCHS
    clients: int = 100  # of whom `cohort` take part in a round
    cohort: int = COHORT
    algo: str = "fedavg"
    samples: int = 0  # training samples of a client; 0: as the setting has it


class Turn(NamedTuple):
    """One timed round: the executor that trained, and the process's largest memory so far in bytes."""

    executor: str
    seconds: float
    samples: int
    peak: int


def ready(cell: str, executor: str, execution: Execution, algo: str = "fedavg", **changes: Any) -> Prepared:
    """Everything for timing a cell, on random images; not augmented, as the plain trainer cannot."""
    values = {**find_setting(CELLS[cell]).values, "augment": False, "local_epochs": EPOCHS, **changes}
    config = RunConfig(algo=algo, **values)
    return prepare(resolve(config), replace(execution, executor=executor), random_images(config))


@contextlib.contextmanager
def processes(names: Iterable[str]) -> Iterator[dict[str, ProcessPoolExecutor]]:
    """A process for each name; they end together."""
    with contextlib.ExitStack() as stack:
        context = get_context("spawn")
        ends = signal.SIGINT, signal.SIG_DFL  # Ctrl-C ends them at once and without a word
        yield {
            name: stack.enter_context(ProcessPoolExecutor(1, context, signal.signal, ends)) for name in names
        }


def turns(
    works: Mapping[str, Work], repeats: int, places: Mapping[str, ProcessPoolExecutor]
) -> list[dict[str, Turn]]:
    """Rounds of each work in the process of its name, in turn; a first round of each is not timed."""

    def each() -> dict[str, Turn]:
        return {name: places[name].submit(_turn, work).result() for name, work in works.items()}

    return [each() for _ in range(repeats + 1)][1:]


# -- in a process of its own ------------------------------------------------------------------------------


def _turn(work: Work) -> Turn:
    return next(timed(work))


@lru_cache(maxsize=1)  # which the process keeps between turns, until it is given another work
def timed(work: Work) -> Iterator[Turn]:
    """Rounds of some work without an end."""
    own = {"samples_per_client": work.samples, "test_samples_per_client": 4} if work.samples else {}
    executor = "loop" if work.trainer == PLAIN else work.trainer
    prepared = ready(
        work.cell, executor, work.execution, work.algo,
        local_epochs=work.epochs, clients=work.clients, participation=work.cohort / work.clients, **own,
    )  # fmt: skip
    algorithm, task, device = prepared.make(2**30), prepared.task, prepared.task.data.device
    plain = work.trainer == PLAIN
    trainer = PlainTrainer(prepared.config, task.data, task.streams) if plain else task.executor
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with contextlib.closing(task.executor):
        for number in itertools.count(1):
            with precision(work.execution.tf32):
                started = time.perf_counter()
                cohort = task.schedule.cohort(number, full=False)
                call = algorithm.begin(cohort, algorithm.message(cohort, number), number)
                outcome = trainer.train(call)
                algorithm.keep(outcome)
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                elif device.type == "mps":
                    torch.mps.synchronize()
                seconds = time.perf_counter() - started
            yield Turn(prepared.resolved.executor, seconds, outcome.samples, peak_memory(device))


def peak_memory(device: torch.device) -> int:
    """The largest memory of this process so far in bytes; on CUDA, of the device."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError, StopIteration):
        # Linux: what getrusage tells of a process includes the process that started it.
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
