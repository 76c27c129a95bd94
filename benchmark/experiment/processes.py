"""Processes that share the cores and GPUs of a machine, and end with the one that began them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import resource_tracker

import torch

from pfl_benchmark.errors import UserError
from pfl_benchmark.records.environment import CORES_VARIABLE, available_cores

_READ_AGAIN = 86  # exit code


def confined(number: int, jobs: int, **variables: str) -> contextlib.AbstractContextManager[None]:
    """Confine this thread, and the threads and processes begun inside, to one of `jobs` shares of the cores.

    The processes get `variables` of the environment. Shares are numbered from 0, at least one core each.
    """
    count = available_cores()
    return _on(count * number // jobs, count * (number + 1) // jobs, variables)


def at_most(cores: int) -> contextlib.AbstractContextManager[None]:
    """Confine this thread, and the threads begun inside, to so many of the cores that it may use."""
    return _on(0, min(cores, available_cores()), {})


@contextlib.contextmanager
def _on(first: int, last: int, variables: dict[str, str]) -> Iterator[None]:
    variables[CORES_VARIABLE] = str(last - first)
    before = {name: os.environ[name] for name in variables if name in os.environ}
    threads = torch.get_num_threads()
    with contextlib.ExitStack() as undo:
        undo.callback(os.environ.update, before)
        for name in variables:
            undo.callback(os.environ.pop, name, None)
        os.environ.update(variables)
        if hasattr(os, "sched_setaffinity"):  # not on macOS, where the number alone must do
            all_cores = os.sched_getaffinity(0)
            undo.callback(os.sched_setaffinity, 0, all_cores)
            os.sched_setaffinity(0, sorted(all_cores)[first:last])
        undo.callback(torch.set_num_threads, threads)
        torch.set_num_threads(min(threads, last - first))
        yield


def use_share() -> None:
    """In a worker: let PyTorch use as many threads as this process may use cores."""
    torch.set_num_threads(available_cores())


def own_gpu(number: int, device: str) -> dict[str, str]:
    """Variables that show a worker one GPU only, where there are several; taken in turn by its number."""
    count = torch.cuda.device_count()
    if device not in ("auto", "cuda") or count < 2:
        return {}
    name = "CUDA_VISIBLE_DEVICES"
    visible = os.environ.get(name, "").split(",") if os.environ.get(name) else list(map(str, range(count)))
    return {name: visible[number % count]}


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
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


def follow_parent(pause: float) -> None:
    """In a worker: leave interrupts to the process that has begun this one, and end with it.

    It gets SIGTERM then, and again every `pause` seconds: the first may only end what it is doing.
    """

    def follow() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        while True:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(pause)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=follow, daemon=True).start()


def end_if_reading_script() -> None:
    """In a worker that reads the main script, which is what begins it: end, `refuse_unguarded` says why."""
    if CORES_VARIABLE in os.environ and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(_READ_AGAIN)


def refuse_unguarded(broken: ProcessPoolExecutor) -> None:
    """Raise UserError if workers were lost since the main script would have begun workers in them."""
    workers = list((broken._processes or {}).values())
    broken.shutdown()  # then exit codes are known
    if any(worker.exitcode == _READ_AGAIN for worker in workers):
        raise UserError(
            "each worker reads the script that calls this, and would begin workers of its own; keep what the "
            "script runs under `if __name__ == '__main__':`"
        )
