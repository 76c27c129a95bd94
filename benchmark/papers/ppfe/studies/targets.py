"""What the methods spend to reach FedAvg's and Local Only's accuracy."""

from __future__ import annotations

from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.papers.ppfe.studies.rows import METHODS
from pfl_benchmark.studies.grid import Column, Grid, Study

__all__ = ["TARGETS"]


def _adapted(*settings: str) -> Grid:
    """Settings in which methods that fine-tune are evaluated so on the way."""
    return Grid(
        METHODS, tuple(Column(SETTINGS[name].title, name, {"eval_adapted": True}) for name in settings)
    )


TARGETS = Study(
    "targets",
    "Cost to FedAvg's and Local Only's accuracy",
    {
        "quick": _adapted("digits-s2"),
        "lite": _adapted("cifar10-s5-lite"),
        "paper": _adapted("cifar10-s5", "cifar10-s2"),
    },
    tables=("targets",),
    figures=("learning-curves",),
    highlight="PPFE",
    on_request=("quick", "lite", "paper"),
    shows="What each method spends until it is as good as FedAvg or as training alone.",
)
