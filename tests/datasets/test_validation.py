"""Validation splits."""

import numpy as np
import pytest

from pfl_benchmark.datasets.api import Split, hold_out, load
from pfl_benchmark.errors import UserError


@pytest.fixture(scope="module")
def dealt():
    rng = np.random.default_rng(0)
    rows = rng.permutation(600)
    train = tuple(np.sort(part) for part in np.split(rows, [2, 12, 100, 600])[:4])
    return Split(train, tuple(np.arange(3) for _ in train))


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99])
def test_held_out_and_kept_samples_are_the_clients_training_samples(dealt, share):
    digits = load("digits")
    dataset, split = hold_out(digits, dealt, share, np.random.default_rng(1))
    assert dataset.test is dataset.train is digits.train
    for before, kept, held in zip(dealt.train, split.train, split.test, strict=True):
        assert np.array_equal(np.sort(np.concatenate([kept, held])), before)
        assert len(held) == min(max(1, round(share * len(before))), len(before) - 1)


def test_a_client_with_one_sample_is_named(dealt):
    lonely = Split((np.arange(5), np.array([7])), (np.arange(2), np.arange(2)))
    with pytest.raises(UserError, match="client 1 has 1 training sample"):
        hold_out(load("digits"), lonely, 0.2, np.random.default_rng(0))


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_shares_outside_the_unit_interval_are_refused(tiny, share):
    with pytest.raises(UserError, match="--validation"):
        tiny("fedavg", validation=share).validate()


def test_a_run_with_validation_is_another_run_and_sees_no_test_sample(tiny, ready, launch, tmp_path):
    plain, config = tiny("fedavg"), tiny("fedavg", validation=0.25)
    assert config.hash != plain.hash
    assert tiny("fedavg", validation=0.0).hash == plain.hash
    ours, theirs = ready(config).prepared, ready(plain).prepared
    for client in range(config.clients):
        before = {row.numpy().tobytes() for row in theirs.task.data.raw(client)}
        seen = [*ours.task.data.raw(client), *ours.task.data.raw(client, "test")]
        assert {row.numpy().tobytes() for row in seen} == before
    run = launch(config, tmp_path)
    assert run.summary["rounds"] == config.rounds
