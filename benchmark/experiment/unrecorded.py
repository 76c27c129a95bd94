"""Runs that nobody watches, and runs that leave no record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.api import DATASETS, Dataset
from pfl_benchmark.datasets.noise import noise
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.budget import Plan
from pfl_benchmark.engine.rounds import Observer, run
from pfl_benchmark.records.scratch import scratch
from pfl_benchmark.records.writer import RunRecord


class Quiet(Observer):
    """An observer that shows nothing."""

    def start(self, rounds: int, done: int) -> None:
        return

    def round(self, line: Mapping[str, Any]) -> None:
        return


def random_images(config: RunConfig) -> Dataset:
    """Random samples in the form of a run's dataset, enough for every client."""
    each = max(config.samples_per_client, config.test_samples_per_client)
    return noise(config.dataset, (2 * config.clients + DATASETS[config.dataset].classes) * each)


def run_unrecorded(algorithm: Algorithm, observer: Observer) -> dict[str, Any]:
    """A run from its first round to the record, which is dropped; returns its summary."""
    config = algorithm.task.config
    with scratch() as folder:
        record = RunRecord(folder, config, config.algo)
        record.folder.mkdir()
        return run(algorithm, Plan(config.rounds, "rounds"), record, None, observer, {})
