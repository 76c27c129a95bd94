"""Partition partitioners: what every one of the registry promises, and what the registry refuses."""

import dataclasses
import json
from dataclasses import dataclass

import numpy as np
import pytest

import pfl_benchmark.datasets.partitioners.base as base
from pfl_benchmark.config.flags import config_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.api import PARTITIONERS, load
from pfl_benchmark.datasets.partitioners import OPTIONS, ByLabels, option, register
from pfl_benchmark.errors import UserError, flag
from pfl_benchmark.experiment.prepare import split_of
from tests.cli.test_flags import parse

BY_LABELS = [name for name, partitioner in PARTITIONERS.items() if issubclass(partitioner, ByLabels)]


def run_under(partitioner, **changes):
    """A run under a partitioner with its defaults, or the examples where it has none."""
    options = {
        name: spec.metadata["such_as"] or spec.default
        for name, spec in PARTITIONERS[partitioner].options().items()
    }
    data = (
        {"dataset": "synth-tweets", "embedding": 16}
        if PARTITIONERS[partitioner].by_user
        else {"dataset": "digits"}
    )
    known = {**data, "clients": 20, "samples_per_client": 40, "test_samples_per_client": 15}
    return RunConfig(**{**known, "partition": partitioner, **options, **changes})


@pytest.fixture(scope="module")
def data():
    tweets = load("synth-tweets")
    held_out = np.arange(len(tweets.users)) % 4 == 0
    tweets = dataclasses.replace(tweets, groups=tweets.users, held_out=held_out)
    return {"digits": load("digits"), "synth-tweets": tweets}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_promises_of_every_partitioner(data, partitioner, seed):
    config = run_under(partitioner, seed=seed)
    dataset = config.partitioner.arranged(data[config.dataset])
    split = split_of(config, dataset)
    assert split.clients == len(split.train) == len(split.test) == config.clients
    assert min(*split.train_sizes, *split.test_sizes) >= 1
    dealt = np.concatenate(split.train)
    if PARTITIONERS[partitioner].by_user:  # test samples are some of the users' own
        dealt = np.concatenate([dealt, *split.test])
    assert len(np.unique(dealt)) == len(dealt)
    for parts, size in ((split.train, len(dataset.train)), (split.test, len(dataset.test))):
        for part in parts:
            assert part.dtype == np.int64
            assert len(np.unique(part)) == len(part)
            assert 0 <= part.min() <= part.max() < size
    if "test_samples_per_client" not in PARTITIONERS[partitioner].ignores:
        assert (split.test_sizes <= config.test_samples_per_client).all()
        assert PARTITIONERS[partitioner].by_user or (split.test_sizes == config.test_samples_per_client).all()
        assert split.train_sizes.sum() <= config.clients * config.samples_per_client
    if PARTITIONERS[partitioner].sizes == base.Partitioner.sizes:
        assert (split.train_sizes == config.samples_per_client).all()


@pytest.mark.parametrize("partitioner", BY_LABELS)
def test_tests_are_of_classes_trained_on(data, partitioner):
    digits = data["digits"]
    split = split_of(run_under(partitioner), digits)
    for train, test in zip(split.train, split.test, strict=True):
        if not PARTITIONERS[partitioner].mixed:
            assert set(digits.test.y[test]) <= set(digits.train.y[train])


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_the_seed_decides_and_nothing_else(data, partitioner):
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    config = run_under(partitioner)
    first, again, other = (
        split_of(dataclasses.replace(config, seed=seed), data[config.dataset]).checksum for seed in (1, 1, 2)
    )
    assert first == again != other
    assert len(first) == 16
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@pytest.mark.parametrize("partitioner", BY_LABELS)
def test_ten_thousand_clients(partitioner):
    labels = np.random.default_rng(7).permutation(np.repeat(np.arange(100), 500))
    config = run_under(partitioner, clients=10_000, samples_per_client=4, test_samples_per_client=4)
    split = config.partitioner.divide(labels, labels, 100, np.random.default_rng(0))
    assert split.clients == 10_000
    assert min(*split.train_sizes, *split.test_sizes) >= 1


# What others see of a partitioner


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_fields_flags_and_folder_names(partitioner):
    config = run_under(partitioner)
    config.validate()
    assert config.partitioner.options() == PARTITIONERS[partitioner].options()
    assert not set(PARTITIONERS[partitioner].options()) & set(config.idle)
    words = " ".join(f"{flag(name)} {getattr(config, name)}" for name in PARTITIONERS[partitioner].options())
    _, resolved = config_of(
        parse(f"--dataset {config.dataset} --partition {partitioner} --clients 20 {words}")
    )
    assert {name: getattr(resolved, name) for name in OPTIONS} == {
        name: getattr(config, name) for name in OPTIONS
    }
    assert config.partitioner.describe()
    assert config.partitioner.slug.replace(".", "").isalnum()


def test_folder_names_tell_partitioners_apart():
    assert len({run_under(partitioner).partitioner.slug for partitioner in PARTITIONERS}) == len(PARTITIONERS)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_stays_out_of_records_of_other_partitioners(name):
    """So that these can be read by whoever has the other partitioner not."""
    config = run_under(
        next(partitioner for partitioner in PARTITIONERS if name not in PARTITIONERS[partitioner].options())
    ).settled()
    always = "absent" not in OPTIONS[name].metadata
    assert (name in config.to_dict()) == (name in json.loads(config.identity)) == always
    assert RunConfig.from_dict(config.to_dict()) == config
    changed = dataclasses.replace(config, **{name: OPTIONS[name].default + 1})
    assert changed.hash != config.hash
    assert RunConfig.from_dict(changed.to_dict()) == changed


# Refusals


def outside(spec):
    """Values beside the interval of an option."""
    low, high = (float(end) for end in spec.metadata["within"][1:-1].split(","))
    kind = type(spec.default)
    yield kind(low - 1)
    if spec.metadata["within"][0] == "(":
        yield kind(low)
    if kind is float:
        yield from (float("nan"), float("inf"), float("-inf"))
    if high < float("inf"):
        yield kind(high + 1)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_bad_fields_are_refused_in_one_line(partitioner):
    config = run_under(partitioner)
    bad = [(name, 0) for name in ("clients", "samples_per_client", "test_samples_per_client")]
    bad += [
        (name, value) for name, spec in PARTITIONERS[partitioner].options().items() for value in outside(spec)
    ]
    for name, value in bad:
        with pytest.raises(UserError, match=rf"^{flag(name)} is .*; expected a .*number") as error:
            dataclasses.replace(config, **{name: value}).validate()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_a_dataset_that_is_not_for_a_partitioner(data, partitioner):
    other = "digits" if PARTITIONERS[partitioner].by_user else "synth-tweets"
    config = run_under(partitioner, dataset=other)
    for attempt in (
        lambda: split_of(config, data[other]),
        lambda: config.partitioner.split(data[other], np.random.default_rng(0)),
    ):
        with pytest.raises(UserError, match=rf"--partition {partitioner} .*'{other}'.*partition"):
            attempt()


def test_an_unknown_partitioner():
    with pytest.raises(UserError, match=r"unknown partition 'shard' \(did you mean 'shards'\?\)"):
        base.find_partitioner("shard")
    with pytest.raises(UserError, match=r"unknown partition 'shard'"):
        RunConfig.from_dict({"partition": "shard"})


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"name": "iid"}, "two partitioners are called 'iid'"),
        ({"name": ""}, "no `name`"),
        ({"strength": 1.0}, r"strength of 'named' is no `option"),
        (
            {"dirichlet": option(0.5, "another", "(0, 1)")},
            "option dirichlet of 'named' is one of 'dirichlet'",
        ),
    ],
)
def test_what_is_no_partitioner(parts, complaint, monkeypatch):
    fields = {"__annotations__": {name: float for name in parts if name != "name"}}
    partitioner = type(
        "Partitioner", (ByLabels,), {"__doc__": "A partitioner.", "name": "named", **fields, **parts}
    )
    monkeypatch.setattr(base, "PARTITIONERS", dict(PARTITIONERS))
    with pytest.raises(ValueError, match=complaint):
        register(dataclass(frozen=True)(partitioner))
    assert base.PARTITIONERS == PARTITIONERS
