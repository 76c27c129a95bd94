"""Workers of a run on several devices of this machine; what runs in a worker, wherever it is."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

import torch

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.executors.divided import Lost, Worker
from pfl_benchmark.engine.executors.replica import Replica
from pfl_benchmark.engine.precision import precision
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.experiment.processes import (
    confined,
    follow_parent,
    interrupts_blocked,
    refuse_unguarded,
    use_share,
)
from pfl_benchmark.records.environment import available_cores, device_name
from pfl_benchmark.resolve.plugins import load_plugins
from pfl_benchmark.resolve.run import resolve

_GRACE = 10.0  # seconds between signals to a worker whose run has ended


def begun(workers: Sequence[Any]) -> Sequence[Worker]:
    """Workers that are ready; they begin side by side. If one cannot, all are ended."""
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.wait()
    except BaseException:
        for worker in workers:
            worker.close()
        raise
    return workers


class ProcessWorker(Worker):
    """A process on one of this machine's devices, with its share of the cores."""

    def __init__(
        self, config: RunConfig, execution: Execution, devices: Sequence[torch.device], number: int
    ) -> None:
        self.place = f"{devices[number]} ({number + 1} of {len(devices)})"
        self._number, self._count = number, len(devices)
        self._run = (config, replace(execution, device=str(devices[number]), trackings=()))
        self._pool: ProcessPoolExecutor | None = None

    def start(self) -> None:
        """Begin to load the run's data."""
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_begin)
        with confined(self._number, self._count), interrupts_blocked():
            self._ready = self._pool.submit(begin, *self._run)

    def wait(self) -> None:
        """Return when it is ready."""
        try:
            self.device, self.executor, self.cores = self._ready.result()
        except BrokenProcessPool as error:
            assert self._pool is not None
            refuse_unguarded(self._pool)
            raise UserError(
                f"the worker on {self.place} has ended while it began; most often its memory is full: name "
                "fewer devices"
            ) from error

    def restart(self) -> None:
        self.close()
        self.start()
        self.wait()

    def ask(self, request: bytes) -> Future[bytes]:
        assert self._pool is not None
        try:
            answer = self._pool.submit(serve, request)
        except BrokenProcessPool as error:
            answer = Future()
            answer.set_exception(error)
        return translated(answer, lambda error: isinstance(error, BrokenProcessPool))

    def close(self) -> None:
        if self._pool is None:
            return
        processes: Mapping[int, Any] = dict(self._pool._processes or {})
        for process in processes.values():
            process.kill()  # it holds nothing that is not here
        self._pool.shutdown(cancel_futures=True)
        self._pool = None


def translated(answer: Future[bytes], is_loss: Callable[[BaseException], bool]) -> Future[bytes]:
    """A future like `answer`, whose exception is `Lost` where that is what it means."""
    found: Future[bytes] = Future()

    def ended(done: Future[bytes]) -> None:
        error = done.exception()
        if error is None:
            found.set_result(done.result())
        else:
            found.set_exception(Lost(type(error).__name__) if is_loss(error) else error)

    answer.add_done_callback(ended)
    return found


# -- in a worker --------------------------------------------------------------------------------------------

_replica: Replica | None = None
_computing = contextlib.ExitStack()


def _begin() -> None:
    follow_parent(_GRACE)
    use_share()


def begin(config: RunConfig, execution: Execution) -> tuple[str, str, int]:
    """Load data and network of a run; returns device, executor and number of cores of this process."""
    global _replica
    load_plugins()
    _computing.enter_context(precision(execution.tf32))  # for good
    run = resolve(config, execution)
    task = prepare(run, execution).task
    _replica = Replica(task.executor, task.network)
    return device_name(task.data.device), run.executor, available_cores()


def serve(request: bytes) -> bytes:
    """The answer of this process's `Replica`."""
    assert _replica is not None
    return _replica.serve(request)
