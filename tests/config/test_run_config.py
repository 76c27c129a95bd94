"""Configurations: identity, validation, reading back."""

import dataclasses
import json
from dataclasses import dataclass, field

import pytest

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.partitioners import OPTIONS
from pfl_benchmark.engine.shared_rounds import common_fields
from pfl_benchmark.errors import UserError
from pfl_benchmark.resolve.run import method_label

FIELDS = [spec.name for spec in dataclasses.fields(RunConfig)]

OTHER = {  # another value of every field
    "algo": "local",
    "dataset": "digits",
    "partition": "shards",
    "clients": 50,
    "samples_per_client": 100,
    "test_samples_per_client": 50,
    "embedding": 300,
    "shift": "concept=permute:2",
    "cell": "gru",
    "network": "cnn-emnist",
    "weights": f"sha256:{'0' * 64}",
    "adapters": "head",
    "participation": 0.2,
    "last_round": "cohort",
    "rounds": 80,
    "local_epochs": 1,
    "batch_size": 20,
    "lr": 0.1,
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "standardise": "client",
    "optimizer": "adam",
    "nesterov": True,
    "lr_schedule": "cosine",
    "clip_norm": 1.0,
    "local_steps": 20,
    "label_smoothing": 0.1,
    "augment": True,
    "crop_padding": 0,
    "dropout": 0.6,
    "aggregation": "samples",
    "budget": "bytes",
    "byte_budget": 10**9,
    "sample_budget": 10**6,
    "compute_cap": 3.0,
    "eval_every": 0,
    "eval_clients": 10,
    "eval_adapted": True,
    "temperature_scaling": True,
    "seed": 1,
    "validation": 0.2,
    "new_clients": 0.2,
    "adapt_epochs": 3,
    "tuning_trials": 20,
    "stop_after": 40,
    "hyper": {"lam": 0.5},
    **{name: spec.default + 1 for name, spec in OPTIONS.items()},
}


# Identity


def test_the_identity_of_the_default_configuration_is_pinned():
    """Records are found by this hash: a change here orphans every record that exists."""
    assert RunConfig().hash == "ff294e5a24"


def test_every_field_counts():
    base = RunConfig()
    changed = [dataclasses.replace(base, **{name: OTHER[name]}) for name in FIELDS]
    assert len({config.hash for config in [base, *changed]}) == len(FIELDS) + 1


def test_the_hash_depends_on_values_alone():
    a = RunConfig(hyper={"x": 1, "y": (1, 2)})
    b = RunConfig(hyper={"y": [1, 2], "x": 1})
    assert a.identity == b.identity
    assert len(a.hash) == 10
    assert int(a.hash, 16) >= 0


@dataclass(frozen=True)
class Later(RunConfig):
    """The next version, with a field that old records do not have."""

    novelty: int = field(default=3, metadata={"doc": "new", "choices": (), "absent": 0})


def test_a_later_field_at_its_old_meaning_keeps_the_identity():
    assert Later(novelty=0).identity == RunConfig().identity
    assert Later().identity != RunConfig().identity
    assert common_fields(Later(novelty=0)) == common_fields(RunConfig())


def test_fields_of_text_do_not_change_the_identity_of_images():
    assert not {"user_pool", "test_share", "least_test", "embedding", "cell"} & set(
        json.loads(RunConfig().identity)
    )


# Reading back


def test_a_configuration_survives_json(algo, tiny):
    config = tiny(algo)
    again = RunConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again.identity == config.identity


def test_a_configuration_from_json_has_the_same_label(tiny):
    for algo, method in ALGORITHMS.items():
        for name in [None, *method.ablations]:
            values = {} if name is None else method.ablations[name]
            config = tiny(algo, dict(values))
            again = RunConfig.from_dict(json.loads(json.dumps(config.to_dict())))
            assert method_label(again) == method_label(config)
    assert any(isinstance(v, tuple) for m in ALGORITHMS.values() for v in vars(m.Hyper()).values())


def test_an_unknown_key_is_an_error():
    with pytest.raises(UserError, match=r"unknown configuration key 'client' \(did you mean 'clients'\?\)"):
        RunConfig.from_dict({"client": 5})


# Validation


def test_the_default_and_all_other_values_are_valid():
    RunConfig().validate()
    for name in FIELDS:
        dataclasses.replace(RunConfig(), **{name: OTHER[name]}).validate()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(
            (name, 0, f"--{name.replace('_', '-')} is 0; expected a whole number of at least 1")
            for name in ("clients", "samples_per_client", "rounds", "local_epochs", "batch_size")
        ),
        ("test_samples_per_client", -1, "--test-samples-per-client is -1"),
        ("participation", 0, r"--participation is 0; expected a number in \(0, 1\]"),
        ("participation", 1.1, "--participation is 1.1"),
        ("participation", float("nan"), "--participation is nan"),
        ("lr", 0.0, "--lr is 0; expected a number above 0"),
        ("lr", float("inf"), "--lr is inf"),
        ("lr", float("nan"), "--lr is nan"),
        ("compute_cap", 0.0, "--compute-cap is 0"),
        ("weight_decay", -0.1, "--weight-decay is -0.1; expected a number of at least 0"),
        ("eval_every", -1, "--eval-every is -1"),
        ("byte_budget", -1, "--byte-budget is -1"),
        ("sample_budget", -1, "--sample-budget is -1"),
        ("seed", -1, "--seed is -1"),
        ("new_clients", 1.0, r"--new-clients is 1; expected a number in \[0, 1\)"),
        ("new_clients", -0.1, "--new-clients is -0.1"),
        ("new_clients", 0.985, "--new-clients 0.985 leaves 1 of 100 clients to train; expected at least 2"),
        ("adapt_epochs", -1, "--adapt-epochs is -1"),
        ("momentum", 1.0, r"--momentum is 1; expected a number in \[0, 1\)"),
        ("dropout", -0.5, "--dropout is -0.5"),
        ("cell", "lstn", r"--cell is 'lstn'.*\(did you mean 'lstm'\?\)"),
        ("dropout", float("nan"), "--dropout is nan"),
        ("partition", "dirichlett", r"--partition is 'dirichlett'.*\(did you mean 'dirichlet'\?\)"),
        ("aggregation", "sample", r"did you mean 'samples'"),
        ("budget", "time", "--budget is 'time'; expected one of: rounds, bytes"),
    ],
)
def test_values_that_make_no_run(name, value, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(RunConfig(), **{name: value}).validate()


def test_every_field_is_documented():
    for spec in dataclasses.fields(RunConfig):
        assert spec.metadata["doc"], spec.name


# What means nothing


@pytest.mark.parametrize(
    ("name", "value", "means"),
    [
        ("crop_padding", 0, {"augment": True}),
        ("dirichlet", 0.5, {"partition": "dirichlet"}),
        ("classes_per_client", 5, {"partition": "shards"}),
        ("user_pool", 3, {"partition": "natural"}),
        ("test_share", 0.5, {"partition": "natural"}),
        ("least_test", 3, {"partition": "natural"}),
        ("network", "cnn-cifar10", {"dataset": "cifar100"}),
    ],
)
def test_what_means_nothing_makes_no_other_run(name, value, means):
    plain = RunConfig(partition="iid").settled()
    assert dataclasses.replace(plain, **{name: value}).settled() == plain
    chosen = dataclasses.replace(plain, **means, **{name: value})
    assert getattr(chosen.settled(), name) == value


def test_a_record_from_before_a_field_is_of_what_the_field_stood_for():
    before = RunConfig().to_dict()
    assert Later.from_dict(before) == Later(novelty=0)
    assert Later.from_dict(before).identity == RunConfig().identity
