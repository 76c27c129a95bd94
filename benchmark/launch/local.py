"""``--launcher local``: this machine; several cells at once in processes that share its cores and GPUs."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from benchmark.engine.executors.threads import available_cores
from benchmark.errors import UserError
from benchmark.experiment.execution import Execution
from benchmark.launch.base import Ended, Launcher, Options, Quiet, attempt
from benchmark.launch.cores import confined, environ, use_share
from benchmark.launch.pool import Pool
from benchmark.launch.probe import automatic_jobs
from benchmark.launch.registry import register
from benchmark.launch.sequential import Sequential
from benchmark.studies.grid import Cell

__all__ = ["Processes", "local", "own_gpu"]

GRACE = 10.0  # seconds that workers get to stop by themselves


@register("local")
def local(options: Options) -> Launcher:
    """One cell after the other in this process, or several in processes of their own.

    Raises:
        UserError: more jobs than cores.
    """
    jobs, cores = options.jobs, available_cores()
    if jobs is None:
        jobs = 1
    elif jobs == 0:
        jobs = automatic_jobs(options.execution, options.cells)
    elif jobs > cores:
        raise UserError(
            f"--jobs {jobs}: every job needs a core, and there are {cores} here; give --jobs {cores} or "
            "fewer, or use more machines with --launcher slurm or --launcher ray"
        )
    jobs = min(jobs, max(1, len(options.cells)))  # more would have nothing to do, and leave cores idle
    return Sequential(options.execution) if jobs == 1 else Processes(jobs, options.execution)


class Processes(Pool):
    """A pool of processes, begun afresh (``spawn``, as CUDA demands) when they are first needed.

    Each is an executor of its own: one that dies breaks no other.
    """

    def __init__(self, jobs: int, execution: Execution) -> None:
        execution = dataclasses.replace(execution, side_by_side=jobs)
        super().__init__(jobs, f"on this machine, {jobs} at a time", execution)
        self._executors: dict[int, ProcessPoolExecutor] = {}
        self._processes: dict[int, BaseProcess] = {}
        self._futures: dict[int, Future[Ended]] = {}

    def submit(self, cells: Sequence[Cell]) -> Sequence[Future[Ended]]:
        """As `Pool.submit`."""
        return [self._submit(cell) for cell in cells]

    def _submit(self, cell: Cell) -> Future[Ended]:
        futures = self._futures
        place = next(n for n in range(self.jobs) if n not in futures or futures[n].done())
        try:
            futures[place] = self._executors[place].submit(_run, cell, self._execution)
        except (KeyError, BrokenProcessPool):  # there was none yet, or it is dead
            self._start(place, cell)
        return futures[place]

    def _start(self, place: int, cell: Cell) -> None:
        others = set(active_children())
        context = multiprocessing.get_context("spawn")
        executor = ProcessPoolExecutor(1, mp_context=context, initializer=_begin)
        # What is set here is inherited, so that it holds before the worker imports PyTorch.
        with confined(place, self.jobs), environ(own_gpu(place, self._execution)), _interrupts_blocked():
            self._executors[place] = executor
            self._futures[place] = executor.submit(_run, cell, self._execution)
            (self._processes[place],) = set(active_children()) - others  # before an interrupt can come

    def close(self) -> None:
        """As `Pool.close`."""
        for place, process in self._processes.items():
            process.terminate()
            self._executors[place].shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + GRACE
        for process in self._processes.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        for held in (self._executors, self._processes, self._futures):
            held.clear()


def own_gpu(place: int, execution: Execution) -> dict[str, str]:
    """Variables that show the worker at `place` one GPU only, where there are several; taken in turn."""
    count = torch.cuda.device_count()
    if execution.device not in ("auto", "cuda") or count < 2:
        return {}
    name = "CUDA_VISIBLE_DEVICES"
    visible = os.environ.get(name, "").split(",") if os.environ.get(name) else list(map(str, range(count)))
    return {name: visible[place % count]}


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this thread for a moment, and for good in the processes begun inside.

    Ctrl-C reaches everyone on the terminal, and workers while they import as well; one decides.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows, where workers may be interrupted as they begin
        yield
        return
    resource_tracker.ensure_running()  # it comes with the first process, and starting it unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- in a worker --------------------------------------------------------------------------------------------

_stopping = threading.Event()


class _Stopping(Quiet):
    """An observer that ends a run although the signal has come where Python swallows exceptions."""

    def round(self, line: Mapping[str, Any]) -> None:
        """A round is finished."""
        if _stopping.is_set():
            raise SystemExit


def _begin() -> None:
    """Leave interrupts to the process that has begun this one, and end with it."""

    def stop(*_: object) -> None:
        _stopping.set()
        raise SystemExit

    def follow() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        while True:  # the first signal ends the run, the next one the worker, which then waits for another
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(GRACE)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stop)
    threading.Thread(target=follow, daemon=True).start()
    use_share()


def _run(cell: Cell, execution: Execution) -> Ended:
    return attempt(cell, execution, _Stopping())
