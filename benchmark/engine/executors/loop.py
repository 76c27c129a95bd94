"""The plain reference: one client after the other."""

from __future__ import annotations

from collections.abc import Callable

from pfl_benchmark.engine.executors.base import Executor


class LoopExecutor(Executor):
    """Trains clients one at a time with PyTorch's default threads, as PFLlib and FL-bench do."""

    name = "loop"

    def _map(self, task: Callable[[int], object], count: int) -> list:
        return [task(i) for i in range(count)]
