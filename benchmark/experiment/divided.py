"""A run divided among workers, if several devices or the machines of a Ray cluster are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.executors.divided import DividedExecutor, Worker
from pfl_benchmark.experiment.execution import RAY, Execution
from pfl_benchmark.experiment.prepare import Prepared
from pfl_benchmark.experiment.ray import ray_workers
from pfl_benchmark.experiment.replicas import ProcessWorker, begun


def divided(prepared: Prepared, execution: Execution) -> Prepared:
    """The run with workers for its clients, where several devices or ``--executor ray`` are asked for.

    Raises:
        UserError: a worker cannot begin.
    """
    task = prepared.task
    try:
        workers = _workers(prepared.config, execution)
    except BaseException:
        task.executor.close()
        raise
    if not workers:
        return prepared
    executor = DividedExecutor(task.executor, task.network, workers)
    return replace(prepared, task=replace(task, executor=executor))


def of_workers(prepared: Prepared) -> dict[str, Any]:
    """What is on record of workers, in place of what this process computes with; nothing without any."""
    executor = prepared.task.executor
    if not isinstance(executor, DividedExecutor):
        return {}
    names: dict[str, Any] = {
        name: ", ".join(sorted({getattr(worker, name) for worker in executor.workers}))
        for name in ("device", "executor")
    }
    cores = sorted({worker.cores for worker in executor.workers})
    names["cores"] = cores[0] if len(cores) == 1 else ", ".join(map(str, cores))
    return {**names, "workers": len(executor.workers)}


def _workers(config: RunConfig, execution: Execution) -> Sequence[Worker]:
    if execution.executor == RAY:
        return ray_workers(config, execution)
    devices = execution.pick_devices()
    if len(devices) == 1:
        return []
    return begun([ProcessWorker(config, execution, devices, number) for number in range(len(devices))])
