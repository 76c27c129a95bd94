"""``--launcher local``: this machine; several runs at once in processes that share its cores and GPUs."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from typing import NamedTuple

import torch

from pfl_benchmark.engine.executors.threads import available_cores
from pfl_benchmark.engine.exits import ENDING
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.processes import (
    confined,
    follow_parent,
    interrupts_blocked,
    own_gpu,
    refuse_unguarded,
    use_share,
)
from pfl_benchmark.launch import base
from pfl_benchmark.launch.base import (
    BatchReport,
    Ended,
    Ending,
    Launcher,
    Options,
    Watcher,
    attempt,
    refuse_ray,
)
from pfl_benchmark.launch.pool import WorkerPool
from pfl_benchmark.launch.registry import register
from pfl_benchmark.studies.grid import PlannedRun

GRACE = 10.0  # seconds that workers get to stop by themselves
_ON_A_GPU = 4  # jobs, by ``auto``: so many have shared an H100; one that runs out of memory halves its parts


@register("local", "this machine")
def local(options: Options) -> Launcher:
    """One run after the other in this process, or several in others; UserError: more jobs than cores."""
    cores = available_cores()
    jobs = 1 if options.jobs is None else options.jobs or automatic_jobs(options.execution)
    if jobs > cores:
        raise UserError(
            f"--jobs {jobs}: every job needs a core, and there are {cores} here; give --jobs {cores} or "
            "fewer, or use more machines with --launcher slurm or --launcher ray"
        )
    if jobs > 1:
        refuse_ray(options, "runs side by side")
    jobs = min(jobs, max(1, len(options.runs)))  # more would have nothing to do, and leave cores idle
    return Sequential(options.execution) if jobs == 1 else Processes(jobs, options.execution)


def automatic_jobs(execution: Execution) -> int:
    """Return what ``--jobs auto`` stands for: a job a core, but on GPUs at most four each."""
    cores = available_cores()
    if execution.pick_device().type == "cpu":
        return cores
    gpus = torch.cuda.device_count() if execution.device in ("auto", "cuda") else 1
    return min(cores, _ON_A_GPU * gpus)


class Sequential(Launcher):
    """One run after the other, in this process."""

    def __init__(self, execution: Execution) -> None:
        super().__init__(1, "on this machine", execution)

    def run(self, runs: Sequence[PlannedRun], watcher: Watcher) -> BatchReport:
        report, waiting = BatchReport(), list(runs)
        while waiting:
            busy = []
            for run in waiting:
                ended = attempt(run, self._execution, watcher.begin(run))
                if ended.kind == "busy":
                    busy.append(run)
                else:
                    report.add(run, ended, watcher)
            if len(busy) == len(waiting):
                watcher.wait(busy)
                time.sleep(base.PATIENCE)
            waiting = busy
        return report


class _Worker(NamedTuple):
    executor: ProcessPoolExecutor
    process: BaseProcess
    future: Future[Ended]


class Processes(WorkerPool):
    """A pool of processes, begun afresh (``spawn``, as CUDA demands) when they are first needed.

    Each is an executor of its own: one that dies breaks no other.
    """

    def __init__(self, jobs: int, execution: Execution) -> None:
        execution = dataclasses.replace(execution, side_by_side=jobs)
        super().__init__(jobs, f"on this machine, {jobs} at a time", execution)
        self._workers: dict[int, _Worker] = {}

    def submit(self, runs: Sequence[PlannedRun]) -> Sequence[Future[Ended]]:
        return [self._submit(run) for run in runs]

    def _submit(self, run: PlannedRun) -> Future[Ended]:
        workers = self._workers
        number = next(n for n in range(self.jobs) if n not in workers or workers[n].future.done())
        try:
            future = workers[number].executor.submit(_run, run, self._execution)
            workers[number] = workers[number]._replace(future=future)
        except (KeyError, BrokenProcessPool):  # there was none yet, or it is dead
            self._start(number, run)
        return workers[number].future

    def _start(self, number: int, run: PlannedRun) -> None:
        others = set(active_children())
        context = multiprocessing.get_context("spawn")
        executor = ProcessPoolExecutor(1, mp_context=context, initializer=_begin)
        # What is set here is inherited, so that it holds before the worker imports PyTorch.
        gpu = own_gpu(number, self._execution.device)
        with confined(number, self.jobs, **gpu), interrupts_blocked():
            future = executor.submit(_run, run, self._execution)
            (process,) = set(active_children()) - others
            self._workers[number] = _Worker(executor, process, future)  # before an interrupt can come

    def check_loss(self) -> None:
        for worker in self._workers.values():
            if worker.future.done() and isinstance(worker.future.exception(), BrokenProcessPool):
                refuse_unguarded(worker.executor)

    def close(self) -> None:
        for worker in self._workers.values():
            worker.process.terminate()
            worker.executor.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + GRACE
        for worker in self._workers.values():
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
            worker.process.join()
        self._workers.clear()


# -- in a worker --------------------------------------------------------------------------------------------


def _begin() -> None:
    def stop(*_: object) -> None:
        ENDING.set()
        raise SystemExit

    signal.signal(signal.SIGTERM, stop)
    follow_parent(GRACE)
    use_share()


def _run(run: PlannedRun, execution: Execution) -> Ended:
    try:
        return attempt(run, execution, Ending())
    except SystemExit:  # which the executor would raise in the parent, and go on
        os._exit(1)
