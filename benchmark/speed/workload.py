"""The work that is timed: local training of a cohort, on random images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import find_setting
from pfl_benchmark.datasets.api import DATASETS, Dataset
from pfl_benchmark.datasets.noise import noise
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.engine.local import LocalCall, LocalResult
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import Prepared, prepare
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.speed.clock import wait_for
from pfl_benchmark.speed.plain import PlainTrainer

__all__ = [
    "CELLS",
    "COHORT",
    "PLAIN",
    "TRAINERS",
    "local_call",
    "made_dataset",
    "ready",
    "trainer_call",
]

COHORT = 10
PLAIN = "plain"
TRAINERS = (PLAIN, *EXECUTORS)

# Setting and local epochs of a timed call. The paper's: with fewer, what a call costs once weighs too much.
CELLS = {"cifar10": ("cifar10-s2", 5), "digits": ("digits-s2", 5)}


def made_dataset(config: RunConfig) -> Dataset:
    """Random images in the shape of a run's dataset, enough for every client."""
    each = max(config.samples_per_client, config.test_samples_per_client)
    return noise(config.dataset, (2 * config.clients + DATASETS[config.dataset].classes) * each)


def ready(cell: str, executor: str, execution: Execution, algo: str = "fedavg", **changes: Any) -> Prepared:
    """Everything for timing calls of a cell, on random images; not augmented, as the plain trainer cannot."""
    setting, epochs = CELLS[cell]
    values = {**find_setting(setting).values, "augment": False, "local_epochs": epochs, **changes}
    config = RunConfig(algo=algo, **values)
    return prepare(resolve(config), replace(execution, executor=executor), made_dataset(config))


def local_call(
    prepared: Prepared, cohort: list[int], train: Callable[[LocalCall], LocalResult] | None = None
) -> Callable[[], int]:
    """A function that trains `cohort` once, by default with the executor; it returns the samples."""
    algorithm = prepared.make(2)
    train = train or prepared.task.executor.train

    def call() -> int:
        outcome = train(algorithm.begin(cohort, algorithm.message(cohort, 1), 1))
        wait_for(prepared.task.data.device)
        return outcome.samples

    return call


def trainer_call(
    cell: str, trainer: str, execution: Execution, epochs: int
) -> tuple[Prepared, Callable[[], int]]:
    """A cohort's local training by an executor or by the plain trainer."""
    prepared = ready(cell, "loop" if trainer == PLAIN else trainer, execution, local_epochs=epochs)
    plain = PlainTrainer(prepared.config, prepared.task.data, prepared.task.streams)
    return prepared, local_call(prepared, list(range(COHORT)), plain.train if trainer == PLAIN else None)
