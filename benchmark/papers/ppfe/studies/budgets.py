"""The methods at equal rounds, equal bytes and equal samples."""

from __future__ import annotations

from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.papers.ppfe.studies.rows import METHODS
from pfl_benchmark.studies.grid import Column, Grid, Study

__all__ = ["BUDGETS"]


def _budgets(*settings: str) -> Grid:
    """Three columns for each setting, which have its title as their group."""
    return Grid(
        METHODS,
        tuple(
            Column(
                f"{title}, equal {budget}",
                name,
                {} if budget == "rounds" else {"budget": budget},
                group=title,
            )
            for name in settings
            for title in [SETTINGS[name].title]
            for budget in ("rounds", "bytes", "samples")
        ),
    )


BUDGETS = Study(
    "budgets",
    "Test accuracy at equal rounds, bytes and samples",
    {
        "quick": _budgets("digits-s2"),
        "lite": _budgets("cifar10-s5-lite"),
        "paper": _budgets("cifar10-s5", "cifar10-s2"),
    },
    tables=("accuracy", "significance", "spent"),
    figures=("budgets-bytes", "budgets-samples"),
    highlight="PPFE",
    on_request=("quick", "lite", "paper"),
    shows="Whether the order of methods stays if all may send, or compute, the same amount.",
)
