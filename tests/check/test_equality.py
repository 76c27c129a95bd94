"""Equality of executors: how differences are measured and judged. `tests/engine/test_stacked.py` measures."""

import pytest
import torch

from pfl_benchmark.check.equality import Seen, difference


def test_differences_are_relative_and_nothing_escapes():
    one = torch.tensor([1.0, 200.0])
    assert difference({"a": [one]}, {"a": [one + torch.tensor([0.0, 2.0])]}) == pytest.approx(0.01)
    assert difference(one, one.clone()) == 0
    nan = torch.tensor([1.0, float("nan")])
    for other in (torch.ones(3), nan, torch.tensor([1.0, float("inf")])):
        assert difference(one, other) == float("inf")
    assert difference([one], [one, one]) == float("inf")


@pytest.mark.parametrize(
    ("trainings", "passes", "equal"),
    [
        ([1e-7, 1e-6, 1e-7], [1e-6], True),
        ([1e-7, 8e-3], [1e-6], True),  # a pooling window decided otherwise, once
        ([8e-3, 8e-3, 1e-7], [1e-6], False),
        ([1e-7, 0.1, 1e-7], [1e-6], False),
        ([1e-7, 1e-7], [1e-6, 1e-3], False),  # nothing is decided in a forward pass
        ([float("inf")], [], False),
    ],
)
def test_most_trainings_and_all_forward_passes_must_agree(trainings, passes, equal):
    assert Seen(trainings, passes).equal is equal
