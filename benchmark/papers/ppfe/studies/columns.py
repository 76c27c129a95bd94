"""The columns of tables: settings, and points of sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.studies.grid import Column

__all__ = [
    "AUGMENTATIONS",
    "BY_CLASSES",
    "BY_SIZE",
    "DIGITS",
    "DIGITS_DIRICHLET",
    "DIRICHLET",
    "DISTINCT",
    "LITE_DIRICHLET",
    "LITE_SIX",
    "PLAIN",
    "SIX",
    "SYNTHETIC_TWEETS",
    "sweep_points",
    "under",
]

SIX = (
    Column("CIFAR-10 (100, 2)", "cifar10-s2", paper=("CIFAR-10", "100", "2")),
    Column("CIFAR-10 (100, 5)", "cifar10-s5", paper=("CIFAR-10", "100", "5")),
    Column("CIFAR-100 (100, 20)", "cifar100-s20", paper=("CIFAR-100", "100", "20")),
    Column("CIFAR-100 (100, 5)", "cifar100-s5", paper=("CIFAR-100", "100", "5")),
    Column("EMNIST (100, 10)", "emnist-s10", paper=("EMNIST", "100", "10")),
    Column("Sent140 (100, 2)", "sent140", paper=("Sent140", "100", "2")),
)

# What the paper does not say of its images; the middle one is ours, between the two of the specification.
AUGMENTATIONS: dict[str, dict[str, Any]] = {
    "no augmentation": {"augment": False},
    "flips": {"augment": True, "crop_padding": 0},
    "flips and crops": {"augment": True, "crop_padding": 4},
}


def under(partition: str, augmentation: str) -> tuple[Column, ...]:
    """The columns of CIFAR-10 under a protocol that titles name, whichever is the settings' own."""
    changes = {"partition": partition, **AUGMENTATIONS[augmentation]}
    return tuple(
        replace(column, title=f"{column.title}, {partition}, {augmentation}", changes=changes)
        for column in SIX
        if column.setting.startswith("cifar10-")
    )


PLAIN = under("shards", "no augmentation")
# Clients with exactly S different classes, as the paper's words suggest.
DISTINCT = under("distinct", "no augmentation")
DIRICHLET = tuple(
    Column(f"CIFAR-10, α = {alpha}", f"cifar10-dir{alpha}", paper=("CIFAR-10", "100", f"alpha={alpha}"))
    for alpha in ("1.0", "0.3")
)
DIGITS = (Column("Digits (20, 2)", "digits-s2"), Column("Digits, α = 0.3", "digits-dir0.3"))
DIGITS_DIRICHLET = (
    Column("Digits, α = 1.0", "digits-dir0.3", {"dirichlet": 1.0}),
    Column("Digits, α = 0.3", "digits-dir0.3"),
)
SYNTHETIC_TWEETS = Column("Synthetic tweets (20)", "synth-tweets")


# The reduced columns that stand for the paper's, in the same order.
LITE_SIX = (
    *(
        Column(SETTINGS[name].title, name)
        for name in (
            "cifar10-s2-lite",
            "cifar10-s5-lite",
            "cifar100-s20-lite",
            "cifar100-s5-lite",
            "letters-s10-lite",
        )
    ),
    SYNTHETIC_TWEETS,
)
LITE_DIRICHLET = tuple(
    Column(f"CIFAR-10 (20), α = {alpha}", f"cifar10-dir{alpha}-lite") for alpha in ("1.0", "0.3")
)


def _sizes(setting: str, *counts: int) -> tuple[Column, ...]:
    """A setting with so many training samples a client."""
    return tuple(Column(str(n), setting, {"samples_per_client": n}, x=n) for n in counts)


def _classes(setting: str, *counts: int) -> tuple[Column, ...]:
    """A setting with so many classes a client."""
    return tuple(Column(f"S = {n}", setting, {"classes_per_client": n}, x=n) for n in counts)


# The sweeps' columns by profile.
BY_SIZE = {
    "quick": _sizes("digits-s2", 20, 40, 60),
    "lite": _sizes("cifar100-s5-lite", 50, 100, 200, 300),
    "paper": _sizes("cifar100-s5", 100, 200, 300, 400, 500),
}
BY_CLASSES = {
    "quick": _classes("digits-s2", 2, 5, 10),
    "lite": _classes("cifar100-s5-lite", 5, 10, 20, 40),
    "paper": _classes("cifar100-s5", 5, 10, 20, 40),
}


def sweep_points(profile: str, besides: Sequence[Column]) -> tuple[Column, ...]:
    """Both sweeps' columns with titles for other tables, without those that are among `besides`."""
    known, points = [_values(column) for column in besides], []
    for column in (*BY_SIZE[profile], *BY_CLASSES[profile]):
        values = _values(column)
        if values in known:
            continue
        dataset, clients = SETTINGS[column.setting].title.partition(" (")[0], RunConfig(**values).clients
        title = f"{dataset} ({clients}, {values['classes_per_client']})"
        if "samples_per_client" in column.changes:
            title += f", {values['samples_per_client']} training samples"
        points.append(replace(column, title=title))
    return tuple(points)


def _values(column: Column) -> dict[str, Any]:
    return {**SETTINGS[column.setting].values, **column.changes}
