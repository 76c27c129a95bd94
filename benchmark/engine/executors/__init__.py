"""Executors: different ways to carry out the same local work, held equal by the tests."""

from __future__ import annotations

from benchmark.engine.executors.base import Executor
from benchmark.engine.executors.loop import LoopExecutor
from benchmark.engine.executors.stacked import StackedExecutor
from benchmark.engine.executors.threads import ThreadsExecutor
from benchmark.models import Network

__all__ = ["EXECUTORS", "Executor", "LoopExecutor", "StackedExecutor", "ThreadsExecutor", "choose_executor"]

EXECUTORS: dict[str, type[Executor]] = {
    "loop": LoopExecutor,
    "threads": ThreadsExecutor,
    "stacked": StackedExecutor,
}


# On CPUs stacking wins where a call is dominated by overhead, not by arithmetic. Measured on two cores: the
# digits net (15,466 parameters) trains faster stacked, the CIFAR-10 net (307,842) faster in threads.
SMALL_NETWORK = 50_000


def choose_executor(device_type: str, network: Network | None) -> str:
    """The executor that ``--executor auto`` stands for on a kind of device and for a network."""
    small = network is not None and network.count() < SMALL_NETWORK
    return "stacked" if device_type != "cpu" or small else "threads"
