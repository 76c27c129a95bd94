"""The fields of `RunConfig` told: as words of a command line or for people, and as changes to a setting."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS, find_setting
from pfl_benchmark.datasets.partitioners import OPTIONS
from pfl_benchmark.datasets.partitioners.base import in_units
from pfl_benchmark.datasets.registry import DATASETS
from pfl_benchmark.errors import flag

_FIELDS = tuple(spec.name for spec in dataclasses.fields(RunConfig))

DATA_FIELDS = (
    "dataset", "partition", *OPTIONS, "clients", "samples_per_client", "test_samples_per_client", "shift",
    "embedding", "standardise",
)  # fmt: skip
# All other fields that have a flag of their own form; a new field joins them.
PROTOCOL_FIELDS = tuple(name for name in _FIELDS if name not in (*DATA_FIELDS, "algo", "hyper", "stop_after"))

# What stands between the values of a field that has several.
JOINTS = {
    spec.name: spec.metadata["joint"] for spec in dataclasses.fields(RunConfig) if "joint" in spec.metadata
}

# How papers and other programs call fields.
_CALLED = {
    "alpha": "dirichlet", "beta": "dirichlet", "concentration": "dirichlet", "dir_alpha": "dirichlet",
    "learning_rate": "lr", "local_lr": "lr", "step_size": "lr", "seeds": "seed", "random_seed": "seed",
    "epochs": "local_epochs", "n_epochs": "local_epochs", "bs": "batch_size",
    "n_clients": "clients", "num_clients": "clients", "num_users": "clients", "frac": "participation",
    "fraction": "participation", "join_ratio": "participation", "sample_rate": "participation",
    "wd": "weight_decay", "l2": "weight_decay", "num_rounds": "rounds", "global_rounds": "rounds",
    "iterations": "rounds", "method": "algo", "algorithm": "algo", "model": "network", "arch": "network",
    "optim": "optimizer", "optimiser": "optimizer", "opt": "optimizer", "scheduler": "lr_schedule",
    "lr_scheduler": "lr_schedule", "lr_decay": "lr_schedule", "learning_rate_decay": "lr_schedule",
    "max_norm": "clip_norm", "clip": "clip_norm", "grad_clip": "clip_norm", "clip_grad_norm": "clip_norm",
    "max_grad_norm": "clip_norm", "steps": "local_steps", "n_steps": "local_steps",
    "local_iterations": "local_steps", "local_updates": "local_steps", "smoothing": "label_smoothing",
    "shards": "classes_per_client", "classes": "classes_per_client", "split": "partition",
}  # fmt: skip


def meant(name: str, known: Container[str]) -> str:
    """The field among the `known` ones that people also call by a name; empty: there is none."""
    field = _CALLED.get(name.replace("-", "_"), "")
    return next((name for name in (field, field.replace("_", "-")) if name and name in known), "")


def as_typed(value: object) -> str:
    """A hyper-parameter's value as one would type it: ``2,3`` for a tuple."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def in_one(name: str, value: Any) -> Any:
    """The value of a field that may be given as a list of texts, which is one text; others as they are."""
    joint = JOINTS.get(name)
    if joint and isinstance(value, list | tuple) and value and all(isinstance(part, str) for part in value):
        return joint.join(value)
    return value


def as_words(name: str, value: object) -> list[str]:
    """The words of a command line that set a field: ``["--lr", "0.1"]``, ``["--no-augment"]``."""
    if isinstance(value, bool):
        return [flag(name) if value else flag(f"no_{name}")]
    return [flag(name), str(value)]


def in_words(name: str, value: object) -> str:
    """A field's value for people: ``lr 0.1``, ``no augment``."""
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"{words} {_shown(name, value)}"


def as_flag(name: str, value: object) -> str:
    """`as_words` for people: ``--lr 0.1``."""
    return " ".join(as_words(name, _shown(name, value)))


def _shown(name: str, value: object) -> object:
    """A field's value, but a checksum only as far as it takes to tell it from others."""
    return f"{value:.15}" if name == "weights" else value


def describe_split(config: RunConfig) -> str:
    """A split in words: ``20 clients, 2 classes and 60 training images each``."""
    parts = [config.partitioner.describe(), *(shift.describe() for shift in config.shifts)]
    told = f"{config.clients} clients, {'; '.join(parts)}"
    known = config.dataset in DATASETS and DATASETS[config.dataset].kind == "rows"
    return in_units(told, "rows") if known else told


def changes(setting: str, config: RunConfig, names: Iterable[str] = _FIELDS) -> dict[str, Any]:
    """The fields in which `config` differs from a setting; method and seed do not count.

    An empty name stands for the defaults of `RunConfig`, for a dataset without a setting.
    """
    plain = find_setting(setting).config if setting else RunConfig(dataset=config.dataset)
    ignored = ("algo", "hyper", "seed", *config.idle)
    return {
        name: value
        for name in names
        if name not in ignored and (value := getattr(config, name)) != getattr(plain, name)
    }


def nearest_setting(config: RunConfig, names: Iterable[str] = _FIELDS) -> str:
    """The setting that `config` differs from in the fewest of the fields; empty if none has its dataset.

    Of several it is the one from which it differs in the fewest of all fields.
    """
    same = [name for name, setting in SETTINGS.items() if setting.values["dataset"] == config.dataset]
    names = tuple(names)

    def distance(name: str) -> tuple[int, int]:
        return len(changes(name, config, names)), len(changes(name, config, _FIELDS))

    return min(same, key=distance, default="")


def setting_in_words(
    config: RunConfig, names: Iterable[str] = _FIELDS, common: Mapping[str, Any] = MappingProxyType({})
) -> str:
    """The nearest setting, or else the dataset, and the changes: ``digits-s2, samples per client 20``.

    Only fields among `names` count; those with their value in `common` need no mention.
    """
    names = tuple(names)
    setting = nearest_setting(config, names)
    changed = [item for item in changes(setting, config, names).items() if item not in common.items()]
    return ", ".join([setting or config.dataset, *(in_words(*item) for item in changed)])
