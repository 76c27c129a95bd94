"""Every registered method at its defaults, side by side."""

from __future__ import annotations

from algorithms import ALGORITHMS
from benchmark.config.settings import SETTINGS
from benchmark.studies.grid import Column, Grid, Study, Variant

__all__ = ["METHODS_STUDY"]


def _columns(*settings: str) -> tuple[Column, ...]:
    return tuple(Column(SETTINGS[name].title, name) for name in settings)


_ROWS = tuple(Variant(method.title, name) for name, method in sorted(ALGORITHMS.items()))

METHODS_STUDY = Study(
    "methods",
    "All methods side by side",
    {
        "quick": Grid(_ROWS, _columns("digits-s2", "digits-dir0.3")),
        "paper": Grid(_ROWS, _columns("cifar10-s5", "cifar10-s2")),
    },
    tables=("accuracy", "significance", "worst10", "communication"),
    figures=("learning-curves", "accuracy-bytes"),
    on_request=True,
)
