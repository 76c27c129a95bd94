"""What the tests of launchers share: small cells, and a watcher that remembers."""

import dataclasses

import pytest
from watching import Log

from pfl_benchmark.studies.grid import Cell


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def cells(tiny):
    """Three cells, which differ in their seed."""
    config = tiny("fedavg", rounds=2)
    return [Cell(dataclasses.replace(config, seed=n), f"cell {n}", ("main",)) for n in range(3)]
