"""Fixtures of tests of the Python interface."""

import pytest

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.records.sources import SOURCES


@pytest.fixture
def without_cells():
    kept = dict(ALGORITHMS), dict(SOURCES)
    yield
    for registry, before in zip((ALGORITHMS, SOURCES), kept, strict=True):
        registry.clear()
        registry.update(before)
