"""Figures made from the records of a study, as SVG and PNG."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from benchmark.present.figures.clients import client_accuracies
from benchmark.present.figures.curves import accuracy_bytes, accuracy_samples, learning_curves
from benchmark.present.figures.sweep import sweep
from benchmark.render.picture import Picture
from benchmark.studies.packs import makers
from benchmark.studies.results import Results

__all__ = ["figure_maker", "make_figures"]

# A maker returns None where there is no record to draw.
_GENERAL: dict[str, Callable[[Results], Picture | None]] = {
    "learning-curves": learning_curves,
    "client-accuracies": client_accuracies,
    "sweep": sweep,
    "accuracy-bytes": accuracy_bytes,
    "accuracy-samples": accuracy_samples,
}


def figure_maker(name: str) -> Callable[[Results], Picture | None]:
    """What draws the figures that studies call so."""
    return _makers()[name]


@cache
def _makers() -> dict[str, Callable[[Results], Picture | None]]:
    return makers("figures", _GENERAL)


def make_figures(results: Results) -> list[Picture]:
    """All figures of a study that there are records for."""
    made = [figure_maker(name)(results) for name in results.study.figures]
    return [picture for picture in made if picture is not None]
