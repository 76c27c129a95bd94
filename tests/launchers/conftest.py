"""What the tests of launchers share: small runs, and a watcher that remembers."""

import dataclasses

import pytest
from watching import Log

from pfl_benchmark.studies.grid import PlannedRun


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def cells(tiny):
    """Three runs, which differ in their seed."""
    config = tiny("fedavg", rounds=2)
    return [PlannedRun(dataclasses.replace(config, seed=n), f"run {n}", ("main",)) for n in range(3)]
