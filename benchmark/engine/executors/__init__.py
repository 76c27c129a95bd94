"""Executors: different ways to carry out the same local work, held equal by the tests."""

from __future__ import annotations

from benchmark.engine.executors.base import Executor
from benchmark.engine.executors.loop import LoopExecutor
from benchmark.engine.executors.stacked import StackedExecutor
from benchmark.engine.executors.threads import ThreadsExecutor

__all__ = ["EXECUTORS", "Executor", "LoopExecutor", "StackedExecutor", "ThreadsExecutor", "choose_executor"]

EXECUTORS: dict[str, type[Executor]] = {
    "loop": LoopExecutor,
    "threads": ThreadsExecutor,
    "stacked": StackedExecutor,
}


def choose_executor(device_type: str) -> str:
    """The executor that ``--executor auto`` stands for on a kind of device."""
    return "threads" if device_type == "cpu" else "loop"
