"""The methods with clients that take no part in training, and with all clients taking part."""

from __future__ import annotations

from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.papers.ppfe.studies.rows import METHODS
from pfl_benchmark.studies.grid import Column, Grid, Study

__all__ = ["NEW_CLIENTS"]


def _new(*settings: str) -> Grid:
    """Settings in which a fifth of the clients is new, beside those in which none is."""
    shares = {"": 0.0, ", 20 % new": 0.2}
    columns = (
        Column(f"{title}{words}", name, {"new_clients": share} if share else {}, group=title)
        for name, title in ((name, SETTINGS[name].title) for name in settings)
        for words, share in shares.items()
    )
    return Grid(METHODS, tuple(columns))


NEW_CLIENTS = Study(
    "new-clients",
    "Accuracy of old and of new clients",
    {"quick": _new("digits-s2"), "lite": _new("cifar10-s5-lite"), "paper": _new("cifar10-s5")},
    tables=("new-clients",),
    highlight="PPFE",
    on_request=("quick", "lite", "paper"),
    shows="How well clients fare that come after the training, against those that took part.",
)
