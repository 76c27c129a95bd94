"""CPU: one client per thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import torch

from pfl_benchmark.engine.executors.allocator import keep_freed_memory
from pfl_benchmark.engine.executors.base import Executor
from pfl_benchmark.errors import UserError
from pfl_benchmark.records.environment import available_cores


class CorePool:
    """A thread per core, each with one intra-op thread: small tensors gain little from more."""

    def __init__(self) -> None:
        keep_freed_memory()
        self.size = available_cores()
        self._pool = ThreadPoolExecutor(self.size)
        self._threads = torch.get_num_threads()

    def map(self, task: Callable[[int], Any], count: int) -> list:
        """Run ``task(0) … task(count − 1)`` and return the results in that order."""
        # The setting is inherited by threads on their first use of PyTorch and by this one at once.
        torch.set_num_threads(1)
        try:
            futures: list[Future[Any]] = []
            try:
                futures += (self._pool.submit(task, i) for i in range(count))
            except RuntimeError as error:
                raise UserError(
                    f"a thread cannot be started ({error}); end other programs, allow more processes (ulimit "
                    "-u), or use --executor loop"
                ) from error
            finally:
                wait(futures)  # also where one has failed: nothing may go on behind the caller's back
            return [future.result() for future in futures]
        finally:
            torch.set_num_threads(self._threads)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class ThreadsExecutor(Executor):
    """Trains as many clients at once as there are cores; whole clients do not wait for each other."""

    name = "threads"
    channels_last = True
    by_cores = False  # a client has one thread

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pool = CorePool()

    def _map(self, task: Callable[[int], object], count: int) -> list:
        return self._pool.map(task, count)

    def close(self) -> None:
        self._pool.close()
