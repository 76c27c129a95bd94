"""Cells side by side on this machine, in processes of their own that share its cores and GPUs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.context import SpawnProcess

import torch

from benchmark.experiment.execution import Execution
from benchmark.launch.base import OnThisMachine, Outcome, Watcher, attempt
from benchmark.launch.cores import confined, environ, use_share
from benchmark.launch.foreman import Foreman
from benchmark.launch.work import Died, Report, Reporter
from benchmark.studies.grid import Cell

__all__ = ["Processes", "ended_how", "own_gpu"]

GRACE = 5.0  # seconds that workers get to stop by themselves


class Processes(OnThisMachine):
    """A `benchmark.launch.base.Launcher` of processes, begun afresh (``spawn``, as CUDA demands)."""

    def __init__(self, jobs: int, execution: Execution) -> None:
        super().__init__(execution)
        self.jobs = jobs
        self.place = f"on this machine, {jobs} at a time"

    def run(self, cells: Sequence[Cell], execution: Execution, watcher: Watcher) -> Outcome:
        """As `Launcher.run`."""
        crew = ProcessCrew(self.jobs, dataclasses.replace(execution, side_by_side=self.jobs))
        try:
            return Foreman(crew, execution, watcher).run(cells)
        finally:
            crew.close()


@dataclass
class _Worker:
    process: SpawnProcess
    connection: Connection


class ProcessCrew:
    """A `benchmark.launch.foreman.Crew` of processes, each started when it is first needed."""

    def __init__(self, jobs: int, execution: Execution) -> None:
        self._jobs, self._execution = jobs, execution
        self._workers: dict[int, _Worker] = {}

    def places(self) -> Sequence[int]:
        """As `Crew.places`."""
        return range(self._jobs)

    def can(self, place: int, cell: Cell) -> bool:
        """As `Crew.can`: all have the data that this process has."""
        return True

    def hopeless(self, cell: Cell) -> bool:
        """As `Crew.hopeless`."""
        return False

    def send(self, place: int, cell: Cell) -> None:
        """As `Crew.send`."""
        if place not in self._workers:
            self._hire(place)
        try:
            self._workers[place].connection.send(cell)
        except ConnectionError:
            return  # it is dead, which `reports` will find out

    def reports(self, timeout: float) -> list[tuple[int, Report]]:
        """As `Crew.reports`."""
        places = {worker.connection: place for place, worker in self._workers.items()}
        found: list[tuple[int, Report]] = []
        for connection in wait(list(places), timeout):
            assert isinstance(connection, Connection)
            place = places[connection]
            try:
                found.append((place, connection.recv()))
            except (EOFError, OSError):
                process = self._workers.pop(place).process
                process.join()
                found.append((place, Died(ended_how(process.exitcode))))
        return found

    def close(self) -> None:
        """End all workers, those at work as well; their checkpoints stay."""
        workers = list(self._workers.values())
        self._workers.clear()
        for worker in workers:
            worker.process.terminate()
        deadline = time.monotonic() + GRACE
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    def _hire(self, place: int) -> None:
        ours, theirs = Pipe()
        arguments = (theirs, self._execution)
        process = get_context("spawn").Process(
            target=_work, args=arguments, name=f"worker-{place}", daemon=True
        )
        # What is set here is inherited, so that it holds before the worker imports PyTorch.
        with confined(place, self._jobs), environ(own_gpu(place, self._execution)), _interrupts_blocked():
            process.start()
            self._workers[place] = _Worker(process, ours)  # before an interrupt can come
        theirs.close()


def own_gpu(place: int, execution: Execution) -> dict[str, str]:
    """Variables that show the worker at `place` one GPU only, where there are several; taken in turn."""
    count = torch.cuda.device_count()
    if execution.device not in ("auto", "cuda") or count < 2:
        return {}
    name = "CUDA_VISIBLE_DEVICES"
    visible = os.environ.get(name, "").split(",") if os.environ.get(name) else list(map(str, range(count)))
    return {name: visible[place % count]}


def ended_how(exit_code: int | None) -> str:
    """The end of a process in words."""
    if exit_code is not None and exit_code < 0:
        return f"was killed ({signal.Signals(-exit_code).name})"
    return f"ended with code {exit_code}"


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this thread for a moment, and for good in the processes begun inside.

    Ctrl-C reaches everyone on the terminal, and workers while they import as well; one decides.
    """
    resource_tracker.ensure_running()  # it comes with the first process, and starting it unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, execution: Execution) -> None:
    """Run the cells that come, until nobody is there any more."""

    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        raise KeyboardInterrupt

    def report(what: Report) -> None:
        if stopping:  # the interrupt has come where Python swallows exceptions, such as in a destructor
            raise KeyboardInterrupt
        connection.send(what)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # blocked since birth; nothing that unblocks it matters
    signal.signal(signal.SIGTERM, stop)
    use_share()
    try:
        while True:
            cell = connection.recv()
            report(attempt(cell, execution, Reporter(report)))
    except (KeyboardInterrupt, EOFError, ConnectionError):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending already
