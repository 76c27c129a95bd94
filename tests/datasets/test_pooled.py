"""PFLlib's practical split: what it deals, and what it refuses."""

import numpy as np
import pytest

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.datasets.api import PARTITIONERS, load
from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.resolve.run import resolve


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def pooled(samples, clients=5, alpha=0.3, share=0.25):
    return PARTITIONERS["pooled"](clients, samples, 1, dirichlet=alpha, test_share=share)


def test_too_few_samples_for_two_each(digits):
    with pytest.raises(
        UserError, match="--samples-per-client is 1, so that there are 7 images for 5 clients"
    ):
        pooled(1).split(digits, np.random.default_rng(0))


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_every_sample_of_both_parts_has_one_place(digits, share):
    total = len(digits.train) + len(digits.test)
    partitioner = pooled(int(total * (1 - share) / 5), share=share)
    both, split = partitioner.arranged(digits), partitioner.split(digits, np.random.default_rng(0))
    assert both.test is both.train
    assert partitioner.arranged(both) is both
    dealt = np.concatenate([*split.train, *split.test])
    assert len(np.unique(dealt)) == len(dealt)
    assert total - 10 <= len(dealt) <= total
    assert max(dealt) >= len(digits.train)
    for train, test in zip(split.train, split.test, strict=True):
        assert len(train) == int((1 - share) * (len(train) + len(test)))
        assert len(train) + len(test) >= 40


def test_a_run_takes_samples_of_either_part_for_training_and_for_tests(digits):
    config = RunConfig(
        algo="fedavg", dataset="digits", partition="pooled", dirichlet=0.3, test_share=0.25, clients=5,
        samples_per_client=200, rounds=1,
    )  # fmt: skip
    prepared = prepare(resolve(config), Execution("cpu", "loop"))
    data: FederatedData = prepared.task.data
    labels = np.concatenate([digits.train.y, digits.test.y])
    for part in ("train", "test"):
        rows = [data.rows(client, part).numpy() for client in range(5)]
        for client, own in enumerate(rows):
            assert (data.labels(client, part).numpy() == labels[own]).all()
        where = np.concatenate(rows) >= len(digits.train)
        assert 0 < where.mean() < 1
    prepared.task.executor.close()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"samples": 100_000}, "give at most"),
        ({"samples": 3}, "fewer than"),
        ({"samples": 60, "alpha": 1e-5}, "--dirichlet 1e-05 left some client"),
        ({"samples": 10, "share": 0.0}, "--test-share"),
    ],
)
def test_what_cannot_be_dealt(digits, given, words):
    with pytest.raises(UserError, match=words):
        pooled(**{"clients": 20, "alpha": 0.005, **given}).split(digits, np.random.default_rng(0))


@pytest.mark.parametrize("name", [name for name in SETTINGS if name.startswith("pfllib-")])
def test_pfllibs_settings_divide_all_images_and_train_its_network(name):
    config = SETTINGS[name].config
    assert (config.participation, config.local_epochs, config.batch_size, config.lr) == (1.0, 1, 10, 0.005)
    assert (config.momentum, config.dirichlet, config.test_share, config.clients) == (0.0, 0.1, 0.25, 20)
    assert config.network == "pfllib-cnn"
    if not name.endswith("-lite"):
        assert config.rounds == 2000
        assert config.clients * config.samples_per_client / (1 - config.test_share) == 60_000
