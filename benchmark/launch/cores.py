"""Sharing the cores of a machine among workers, so that they do not get in each other's way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from benchmark.engine.executors.threads import CORES_VARIABLE, available_cores

__all__ = ["confined", "environ", "use_share"]


@contextlib.contextmanager
def confined(place: int, jobs: int) -> Iterator[None]:
    """Confine this thread, and the threads and processes begun inside, to one of `jobs` shares of the cores.

    Args:
        place: which share, from 0; at least one core each is expected.
    """
    count = available_cores()
    first, last = count * place // jobs, count * (place + 1) // jobs
    threads = torch.get_num_threads()
    with contextlib.ExitStack() as undo:
        undo.enter_context(environ({CORES_VARIABLE: str(last - first)}))
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


@contextlib.contextmanager
def environ(values: dict[str, str]) -> Iterator[None]:
    """Set variables of the environment for what is started inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
