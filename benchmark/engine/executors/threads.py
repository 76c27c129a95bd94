"""CPU: one client per thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from benchmark.engine.executors.base import Executor

__all__ = ["ThreadsExecutor", "available_cores"]


def available_cores() -> int:
    """Cores this process may use, where the system tells; else all of the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class ThreadsExecutor(Executor):
    """Trains as many clients at once as there are cores, each with one intra-op thread.

    Small convolutions gain little from several threads; whole clients do not wait for each other.
    """

    name = "threads"
    channels_last = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._pool = ThreadPoolExecutor(available_cores())
        self._threads = torch.get_num_threads()

    def _map(self, task: Callable[[int], object], count: int) -> list:
        # The setting is inherited by threads on their first use of PyTorch and by this one at once.
        torch.set_num_threads(1)
        try:
            return list(self._pool.map(task, range(count)))
        finally:
            torch.set_num_threads(self._threads)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
