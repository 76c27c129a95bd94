"""Operations on dictionaries of tensors, the mean of uploads, the ledger."""

import pytest
import torch

from pfl_benchmark.engine.ledger import Ledger
from pfl_benchmark.engine.local import LocalResult
from pfl_benchmark.engine.message import Message, WeightedMean
from pfl_benchmark.engine.params import clone, expand, nbytes, row, select


@pytest.fixture
def params():
    generator = torch.Generator().manual_seed(0)
    return {"a": torch.randn(4, 3, generator=generator), "b": torch.randn(5, generator=generator)}


# Dictionaries


def test_clone_shares_nothing(params):
    copy = clone(params)
    copy["a"].zero_()
    assert params["a"].abs().sum() > 0


def test_expand_and_row_undo_each_other(params, differing):
    stacked = expand(params, 3)
    assert {name: tuple(t.shape) for name, t in stacked.items()} == {"a": (3, 4, 3), "b": (3, 5)}
    assert stacked["a"].data_ptr() == params["a"].data_ptr()
    assert all(differing(row(stacked, i), params) == [] for i in range(3))


def test_select(params):
    assert list(select(params, ["b"])) == ["b"]
    with pytest.raises(KeyError):
        select(params, ["c"])


def test_bytes_are_those_of_the_numbers_sent(params):
    assert nbytes(params) == 4 * (12 + 5)
    assert nbytes(expand(params, 7)) == 7 * nbytes(params)  # views are sent in full
    assert nbytes({"a": torch.zeros(3, dtype=torch.float64), "b": torch.zeros(2, dtype=torch.bool)}) == 26
    assert nbytes({}) == 0


# The server's mean


def mean_of(parts):
    mean = WeightedMean()
    for stacked, weights in parts:
        mean.add(range(len(weights)), stacked, torch.tensor(weights))
    return mean.value()


@pytest.mark.parametrize("weights", [[1] * 7, [150, 3, 77, 1, 12, 499, 20], [0.1, 0.7, 0.3, 0.9, 1, 2, 3]])
def test_the_mean_of_equal_models_is_that_model(params, weights, differing):
    integers = all(isinstance(weight, int) for weight in weights)
    mean = mean_of([(expand(params, 4), weights[:4]), (expand(params, 3), weights[4:])])
    if integers:
        assert differing(mean, params) == []
    else:
        torch.testing.assert_close(mean, params, rtol=1e-7, atol=0)


def test_the_mean_is_weighted():
    stacked = {"a": torch.tensor([[1.0, 2.0], [4.0, 8.0]])}
    assert mean_of([(stacked, [1, 1])])["a"].tolist() == [2.5, 5.0]
    assert mean_of([(stacked, [3, 1])])["a"].tolist() == [1.75, 3.5]


def test_the_mean_does_not_depend_on_chunks():
    stacked = {"a": torch.randn(6, 3, generator=torch.Generator().manual_seed(1))}
    weights = [5, 1, 2, 9, 4, 3]
    whole = mean_of([(stacked, weights)])
    pieces = mean_of([({"a": stacked["a"][i : i + 2]}, weights[i : i + 2]) for i in (0, 2, 4)])
    torch.testing.assert_close(whole, pieces, rtol=1e-7, atol=0)
    expected = (stacked["a"].double() * torch.tensor(weights)[:, None]).sum(0) / 24
    torch.testing.assert_close(whole["a"].double(), expected, rtol=1e-6, atol=0)


def test_the_mean_keeps_the_precision_of_the_messages(params):
    assert mean_of([(expand(params, 2), [1, 1])])["a"].dtype == torch.float32


def test_nothing_sent_is_nothing_learnt():
    assert WeightedMean().value() == {}
    assert mean_of([({}, [1, 1])]) == {}


# The ledger


def test_what_is_charged(params):
    ledger = Ledger()
    ledger.charge_message(Message(params), 3)
    ledger.charge_upload(expand(params, 2))
    ledger.charge_closing(Message(params), 10)
    outcome = LocalResult(1, [0], {}, torch.zeros(1), samples=40, steps=6)
    ledger.charge_training(outcome)
    ledger.charge_training(outcome)
    ledger.charge_adaptation(outcome)
    assert ledger == Ledger(3 * 68, 2 * 68, 10 * 68, samples=80, steps=12, adaptation_samples=40)
