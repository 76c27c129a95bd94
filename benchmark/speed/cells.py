"""Every way to train on the same work, in turn.

Trainers have processes of their own: the executor `threads` changes the memory allocator's settings for good
and for everything in its process (`engine.executors.allocator`), and the peak of memory is the
process's. Waiting for its turn a process does nothing, so turns are as close as within one process.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import MappingProxyType
from typing import Any, NamedTuple

from pfl_benchmark.config.network import network_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import find_setting
from pfl_benchmark.datasets.api import DATASETS
from pfl_benchmark.engine.precision import precision
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.speed.clock import ceilings, peak_memory, training_bytes, training_flops
from pfl_benchmark.speed.workload import CELLS, COHORT, PLAIN, TRAINERS, trainer_call

__all__ = ["Trainer", "Turn", "cells"]


class Turn(NamedTuple):
    """One timed call."""

    seconds: float
    samples: int
    peak: int


class Trainer:
    """A trainer in this process; the first call, not timed, is made at once."""

    def __init__(self, cell: str, name: str, execution: Execution, epochs: int) -> None:
        self._prepared, self._call = trainer_call(cell, name, execution, epochs)
        self._tf32 = execution.tf32
        self.turn()

    def turn(self) -> Turn:
        """Train once."""
        with precision(self._tf32):
            started = time.perf_counter()
            samples = self._call()
            seconds = time.perf_counter() - started
        return Turn(seconds, samples, peak_memory(self._prepared.task.data.device))

    def close(self) -> None:
        """Let its threads go."""
        self._prepared.task.executor.close()


_trainer: Trainer  # of a process that has one


def _begin(*arguments: Any) -> None:
    global _trainer
    _trainer = Trainer(*arguments)


def _turn() -> Turn:
    return _trainer.turn()


@contextlib.contextmanager
def seated(
    cell: str, names: Iterable[str], execution: Execution, epochs: int, apart: bool
) -> Iterator[dict[str, Callable[[], Turn]]]:
    """What makes each trainer take a turn: in a process of its own, or all in this one."""
    with contextlib.ExitStack() as stack:
        seats: dict[str, Callable[[], Turn]] = {}
        for name in names:
            if apart:
                pool = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn")))
                pool.submit(_begin, cell, name, execution, epochs).result()
                seats[name] = lambda pool=pool: pool.submit(_turn).result()  # type: ignore[misc]
            else:
                trainer = stack.enter_context(contextlib.closing(Trainer(cell, name, execution, epochs)))
                seats[name] = trainer.turn
        yield seats


def cells(
    execution: Execution,
    repeats: int,
    chosen: Iterable[str],
    trainers: tuple[str, ...] = TRAINERS,
    apart: bool = True,
    epochs: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[dict[str, Any]]:
    """Each trainer on each chosen cell, a cohort of ten.

    Args:
        trainers: `plain`, `loop` and others.
        apart: give each a process of its own.
        epochs: local epochs of a timed call by cell, where not the paper's.
    """
    ceiling = ceilings(execution.pick_device())
    for cell in chosen:
        setting, own_epochs = CELLS[cell]
        config, local_epochs = RunConfig(**find_setting(setting).values), epochs.get(cell, own_epochs)
        network, shape = network_of(config), DATASETS[config.dataset].shape
        work, moved = training_flops(network, shape), training_bytes(network, shape, config.batch_size)
        with seated(cell, trainers, execution, local_epochs, apart) as seats:
            turns = [{name: turn() for name, turn in seats.items()} for _ in range(repeats)]
        for name in seats:
            seconds = statistics.median(turn[name].seconds for turn in turns)
            rate = turns[-1][name].samples / seconds
            yield {
                "cell": cell,
                "executor": name,
                "clients": COHORT,
                "local_epochs": local_epochs,
                "repeats": repeats,
                "tf32": execution.tf32,
                "seconds": seconds,
                "samples_per_second": rate,
                "client_steps_per_second": rate / config.batch_size,
                "flops": work * rate,
                "share_of_product": work * rate / ceiling.flops,
                "product_flops": ceiling.flops,
                "share_of_copy": moved * rate / ceiling.copy,
                "copy_bytes_per_second": ceiling.copy,
                **_times(turns, "loop", name),
                **_times(turns, PLAIN, name),
                "peak_memory": turns[-1][name].peak,
            }


def _times(turns: list[dict[str, Turn]], base: str, name: str) -> dict[str, Any]:
    """How many times as fast as `base`: median, smallest and largest quotient of the times of one turn.

    Neighbouring turns are compared, which a change of the machine's mood leaves alone.
    """
    found = [turn[base].seconds / turn[name].seconds for turn in turns]
    return {f"times_{base}": statistics.median(found), f"times_{base}_range": [min(found), max(found)]}
