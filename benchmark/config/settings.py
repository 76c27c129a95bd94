"""Named settings: the columns of the paper's tables, and the small offline ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.errors import UserError, unknown


@dataclass(frozen=True)
class Setting:
    """A dataset with its split and protocol."""

    title: str  # as tables print it
    values: Mapping[str, Any]  # fields of `RunConfig` that it sets; all others keep their defaults

    @cached_property
    def config(self) -> RunConfig:
        """A run in it, with the defaults of everything else."""
        return RunConfig(**self.values)


def _split(dataset: str, partition: str, train: int, test: int, **more: Any) -> dict[str, Any]:
    """`train` and `test` samples a client, and more fields; under a natural split about as many come out."""
    sizes = {"samples_per_client": train, "test_samples_per_client": test}
    return {"dataset": dataset, "partition": partition, **sizes, **more}


def _shards(dataset: str, train: int, test: int, classes: int, **more: Any) -> dict[str, Any]:
    """A split in shards, with so many classes a client."""
    return _split(dataset, "shards", train, test, classes_per_client=classes, **more)


def _users(count: int) -> dict[str, int]:
    return {"clients": count, "user_pool": count}


# What the paper leaves open for all methods, chosen on Local Only and FedAvg: results/calibration.md. Flips
# are for CIFAR alone (a mirrored letter is another one or none), dropout for CIFAR-100 alone, as in FedRep.
_FLIPS = {"augment": True, "crop_padding": 0}

# Paper, appendix "Data Partitioning" and "Implementation Details".
_SENT140 = {"rounds": 50, "batch_size": 2, **_users(136)}

# Small enough for seconds on a laptop: 20 clients, 5 of them a round. Rounds and epochs were chosen on
# Local Only and FedAvg alone, on a validation split (S = 2, S = 10, Dirichlet 0.3; two seeds), on which
# 0.08 was the best rate for these two. There SCAFFOLD diverges, and PPFE in two settings of the quick
# profile. At 0.04 none of that profile's runs does (seed 0, same split), but SCAFFOLD with seed 1; at 0.03
# it trains with seeds 0 to 2.
_DIGITS = {"clients": 20, "participation": 0.25, "rounds": 40, "local_epochs": 3, "lr": 0.03, "eval_every": 4}

# Chosen likewise among 0.1 to 0.8: 0.2 is as good, others are worse, and so are 40 rounds of three epochs.
_TWEETS = {"participation": 0.25, "rounds": 24, "eval_every": 4, "lr": 0.3, "embedding": 16, **_users(20)}

_SHAKESPEARE = {"participation": 0.05, "rounds": 60, "local_epochs": 2, "lr": 0.3}
_FEW_ROLES = {**_SHAKESPEARE, "participation": 0.2, "rounds": 8, "eval_every": 4}
_PACS = {"test_share": 0.2, "least_test": 1, "clients": 20, "participation": 0.25, "rounds": 100}
_HAPT = {"test_share": 0.3, "clients": 30, "participation": 0.2, "rounds": 100, "local_epochs": 2, "lr": 0.03}

# Sample counts: paper, section "Performance Comparison" and appendix "Data Partitioning"; test sizes are
# ours (the paper states none): all of the official test images of a class, shared by its clients.
SETTINGS: dict[str, Setting] = {
    "cifar10-s2": Setting("CIFAR-10 (100, 2)", _shards("cifar10", 150, 100, 2, **_FLIPS)),
    "cifar10-s5": Setting("CIFAR-10 (100, 5)", _shards("cifar10", 150, 100, 5, **_FLIPS)),
    "cifar100-s20": Setting("CIFAR-100 (100, 20)", _shards("cifar100", 400, 100, 20, dropout=0.6, **_FLIPS)),
    "cifar100-s5": Setting("CIFAR-100 (100, 5)", _shards("cifar100", 400, 100, 5, dropout=0.6, **_FLIPS)),
    "emnist-s10": Setting("EMNIST (100, 10)", _shards("emnist", 100, 200, 10)),
    "cifar10-dir1.0": Setting(
        "CIFAR-10, Dirichlet 1.0", _split("cifar10", "dirichlet", 150, 100, dirichlet=1.0, **_FLIPS)
    ),
    "cifar10-dir0.3": Setting(
        "CIFAR-10, Dirichlet 0.3", _split("cifar10", "dirichlet", 150, 100, dirichlet=0.3, **_FLIPS)
    ),
    # The paper: 136 users with 8 test tweets or more, and about 99 training tweets each. Of the usual test
    # shares a tenth fits that: 8 test tweets then are 80 in all, and 99 training ones 110. At a fifth 40
    # tweets would do, and the mean would be smaller.
    "sent140": Setting(
        "Sent140 (136)",
        _split("sent140", "natural", 99, 11, test_share=0.1, least_test=8, embedding=300, **_SENT140),
    ),
    # For parts of Sent140 in which the users with most tweets have 14 to 62: at the paper's share most would
    # be tested on one or two. With three tenths everybody has 4 or more. And vectors of 50 dimensions. This
    # is not the paper's setting, and stands in none of its columns.
    "sent140-reduced": Setting(
        "Sent140, reduced (136)",
        _split("sent140", "natural", 14, 6, test_share=0.3, least_test=4, embedding=50, **_SENT140),
    ),
    # EMNIST's setting as far as these letters allow: the rarest class has 176 training and 13 test images.
    "letters-s10": Setting("OCR letters (100, 10)", _shards("letters", 40, 13, 10)),
    # Rate and rounds were chosen on Local Only and FedAvg alone, on a validation split (the study
    # natural-rates): at 0.01 both are worse; at 0.05 Local Only is 2.6 points worse, FedAvg 0.9 better.
    "hapt": Setting("HAPT (30)", _split("hapt", "chronological", 400, 200, **_HAPT)),
    "hapt12": Setting("HAPT, twelve activities (30)", _split("hapt12", "chronological", 400, 200, **_HAPT)),
    # The rate was chosen on a validation split: in ten rounds FedAvg learns nothing at 0.1, and never at 0.8,
    # where it stays at the most frequent character; 0.5 is no better than 0.3 (the study natural-rates). Five
    # clients a round, so that a run stays under half an hour of a core: ten learn no faster.
    "shakespeare": Setting(
        "Shakespeare (100)",
        _split("shakespeare", "chronological", 400, 100, test_share=0.2, **_users(100), **_SHAKESPEARE),
    ),
    # A run takes seconds, to try things, and learns nothing.
    "shakespeare-small": Setting(
        "Shakespeare, to try (10)",
        _split("shakespeare", "chronological", 40, 20, test_share=0.2, **_users(10), **_FEW_ROLES),
    ),
    "fmnist-s2": Setting("Fashion-MNIST (100, 2)", _shards("fmnist", 150, 100, 2)),
    "mnist-s2": Setting("MNIST (100, 2)", _shards("mnist", 150, 100, 2)),
    "svhn-s2": Setting("SVHN (100, 2)", _shards("svhn", 150, 100, 2)),
    "tiny-imagenet-s20": Setting("Tiny ImageNet (100, 20)", _shards("tiny-imagenet", 400, 100, 20)),
    "femnist": Setting(
        "FEMNIST (100)",
        _split("femnist", "natural", 180, 45, test_share=0.2, least_test=5, clients=100),
    ),
    "pacs": Setting("PACS (4 domains, 5 each)", _split("pacs", "domains", 400, 100, **_PACS)),
    "digits-s2": Setting(
        "Digits (20, 2)", _split("digits", "distinct", 60, 20, classes_per_client=2, **_DIGITS)
    ),
    "digits-dir0.3": Setting(
        "Digits, Dirichlet 0.3", _split("digits", "dirichlet", 60, 20, dirichlet=0.3, **_DIGITS)
    ),
    "synth-tweets": Setting(
        "Synthetic tweets (20)",
        _split("synth-tweets", "natural", 36, 12, test_share=0.25, least_test=8, **_TWEETS),
    ),
}

# PFLlib's own protocol (TsingZ0/PFLlib, commit d832e76): dataset/utils/dataset_utils.py has 20 clients,
# Dir(0.1) over all images and three quarters of a client's for training; system/main.py has the rest, at its
# defaults. Evaluated after every round, as there, so that the best round can be told beside the last one.
# What differs here: inputs are normalised by the dataset's constants (there to [-1, 1]), the short last
# batches of epochs are kept (there dropped), and round 2,001, which it does not evaluate, is not trained.
_PFLLIB = {
    "dirichlet": 0.1, "test_share": 0.25, "clients": 20, "participation": 1.0, "rounds": 2000,
    "local_epochs": 1, "batch_size": 10, "lr": 0.005, "momentum": 0.0, "aggregation": "samples",
    "network": "pfllib-cnn", "eval_every": 1,
}  # fmt: skip
_PFLLIB_LITE = {"samples_per_client": 150, "rounds": 60}  # a fifteenth of the images

SETTINGS |= {
    f"pfllib-{name}{suffix}": Setting(
        f"{title}, PFLlib's protocol{words}", {**_split(name, "pooled", 2250, 750), **_PFLLIB, **changes}
    )
    for name, title in (("cifar10", "CIFAR-10"), ("cifar100", "CIFAR-100"))
    for suffix, words, changes in (("", "", {}), ("-lite", " in short", _PFLLIB_LITE))
}

# A twentieth of the paper's training: minutes a run on a core. The rate was chosen on Local Only and FedAvg
# alone, on a validation split.
_LITE = {"clients": 20, "participation": 0.25, "rounds": 40, "local_epochs": 3, "lr": 0.03, "eval_every": 4}
_OF_200 = {**_LITE, "samples_per_client": 200}

SETTINGS |= {
    f"{name}-lite": Setting(title, {**SETTINGS[name].values, **changes})
    for name, title, changes in (
        ("cifar10-s2", "CIFAR-10 (20, 2)", _LITE),
        ("cifar10-s5", "CIFAR-10 (20, 5)", _LITE),
        ("cifar100-s20", "CIFAR-100 (20, 20)", _OF_200),
        ("cifar100-s5", "CIFAR-100 (20, 5)", _OF_200),
        ("letters-s10", "OCR letters (20, 10)", _LITE),
        ("cifar10-dir1.0", "CIFAR-10 (20), Dirichlet 1.0", _LITE),
        ("cifar10-dir0.3", "CIFAR-10 (20), Dirichlet 0.3", _LITE),
    )
}

DEFAULT_SETTING = "cifar10-s2"  # the paper's first column


def find_setting(name: str) -> Setting:
    """The setting of that name; for an unknown one UserError suggests the nearest."""
    if name not in SETTINGS:
        if any(setting.values["dataset"] == name for setting in SETTINGS.values()):
            raise UserError(f"unknown setting '{name}': it is a dataset; give it as --dataset {name}")
        raise unknown("setting", name, SETTINGS)
    return SETTINGS[name]


def default_setting(dataset: str) -> str:
    """The setting that ``--dataset`` alone stands for: the first that uses it; UserError: none does."""
    for name, setting in SETTINGS.items():
        if setting.values["dataset"] == dataset:
            return name
    from pfl_benchmark.datasets.api import DATASETS
    from pfl_benchmark.datasets.own import OWN_KINDS

    if dataset in DATASETS:
        raise UserError(
            f"no setting uses the dataset '{dataset}': add one to SETTINGS in "
            "benchmark/config/settings.py, or in its plugin"
        )
    if dataset in SETTINGS:
        raise UserError(f"unknown dataset '{dataset}': it is a setting; give it as --setting {dataset}")
    kind, _, place = dataset.replace("=", ":", 1).rpartition(":")
    place = place.rstrip("/")
    path = Path(place).expanduser()
    if place.lower() in OWN_KINDS:
        kind, place = place, "PATH"
    elif not kind and path.is_file() and path.suffix not in (".parquet", ".csv"):
        raise UserError(
            f"unknown dataset '{dataset}': it is a file; expected a name, folder:PATH, parquet:PATH or "
            "csv:PATH; other data come with a plugin (docs/site/extend/dataset.md)"
        )
    elif not kind and (path.exists() or {*place} & {*"/\\"}):
        kind = path.suffix[1:] if path.suffix in (".parquet", ".csv") else "folder"
    if kind.lower() in OWN_KINDS:
        raise UserError(
            f"unknown dataset '{dataset}'; data of your own are given as --dataset {kind.lower()}:{place}"
        )
    known = sorted({setting.values["dataset"] for setting in SETTINGS.values()})
    raise unknown("dataset", dataset, [*known, *(f"{kind}:PATH" for kind in OWN_KINDS)])
