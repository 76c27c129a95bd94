"""Executors: different ways to carry out the same local work, held equal by the tests."""

from __future__ import annotations

from pfl_benchmark.engine.executors.base import Executor
from pfl_benchmark.engine.executors.loop import LoopExecutor
from pfl_benchmark.engine.executors.stacked import StackedExecutor
from pfl_benchmark.engine.executors.threads import ThreadsExecutor
from pfl_benchmark.models import Network

__all__ = ["EXECUTORS", "Executor", "LoopExecutor", "StackedExecutor", "ThreadsExecutor", "choose_executor"]

EXECUTORS: dict[str, type[Executor]] = {
    "loop": LoopExecutor,
    "threads": ThreadsExecutor,
    "stacked": StackedExecutor,
}


# On CPUs stacking wins where a call is dominated by overhead, not by arithmetic. Measured on two cores: the
# digits net (15,466 parameters) trains faster stacked, the CIFAR-10 net (307,842) faster in threads.
SMALL_NETWORK = 50_000


def choose_executor(device_type: str, network: Network, not_stackable: str = "") -> str:
    """The executor that ``--executor auto`` stands for: the fastest on that kind of device which can.

    Args:
        not_stackable: as of `Executor.unable`.
    """
    stack = device_type != "cpu" or network.size < SMALL_NETWORK
    wanted = ("stacked" if stack else "threads", "threads" if device_type == "cpu" else "loop")
    return next((name for name in wanted if not EXECUTORS[name].unable(network, not_stackable)), "loop")
