"""The methods with clients that take no part in training."""

from __future__ import annotations

from benchmark.config.settings import SETTINGS
from benchmark.papers.ppfe.studies.rows import METHODS
from benchmark.studies.grid import Column, Grid, Study

__all__ = ["NEW_CLIENTS"]


def _new(*settings: str) -> Grid:
    """Settings in which a fifth of the clients is new."""
    return Grid(
        METHODS,
        tuple(Column(f"{SETTINGS[name].title}, 20 % new", name, {"new_clients": 0.2}) for name in settings),
    )


NEW_CLIENTS = Study(
    "new-clients",
    "Accuracy of old and of new clients",
    {"quick": _new("digits-s2"), "lite": _new("cifar10-s5-lite"), "paper": _new("cifar10-s5")},
    tables=("new-clients",),
    highlight="PPFE",
    on_request=("quick", "lite", "paper"),
)
