"""Tuning: hyper-parameters of a method's own and learning rates, on a validation split."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.fields import as_typed
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.studies.grid import Column, Variant


def validation(*settings: str) -> tuple[Column, ...]:
    """Settings with a fifth of every client's training samples in the place of its test samples."""
    return tuple(
        Column(f"{SETTINGS[name].title}, validation", name, {"validation": 0.2}) for name in settings
    )


def default_rate(setting: str) -> float:
    """The learning rate of a setting."""
    return SETTINGS[setting].values.get("lr", RunConfig.lr)


def at_rates(column: Column) -> tuple[Column, ...]:
    """A column at half the default learning rate, at the default, which it leaves as it is, and at twice."""
    default = default_rate(column.setting)
    return (
        replace(column, title=f"lr {default / 2}", changes={**column.changes, "lr": default / 2}),
        replace(column, title=f"lr {default}"),
        replace(column, title=f"lr {2 * default}", changes={**column.changes, "lr": 2 * default}),
    )


def own_points(row: Variant) -> list[Variant]:
    """A method at the hyper-parameters that it names for tuning (`Algorithm.tuning`)."""
    variants = []
    for hyper in ALGORITHMS[row.algo].tuning:
        text = ", ".join(f"{key}={as_typed(value)}" for key, value in hyper.items())
        variants.append(Variant(f"{row.title}, {text}", row.algo, hyper=hyper))
    return variants


def with_points(rows: Iterable[Variant]) -> tuple[Variant, ...]:
    """The rows that have points of their own, each before its points."""
    return tuple(point for row in rows if (own := own_points(row)) for point in (row, *own))
