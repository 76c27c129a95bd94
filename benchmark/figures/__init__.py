"""Figures made from the records of a study, as SVG and PNG."""

from __future__ import annotations

from collections.abc import Callable

from benchmark.figures.clients import client_accuracies
from benchmark.figures.curves import accuracy_bytes, accuracy_samples, learning_curves
from benchmark.figures.stages import ppfe_stages
from benchmark.figures.style import Picture
from benchmark.figures.sweep import sweep
from benchmark.studies.results import Results

__all__ = ["FIGURES", "Picture", "make_figures"]

# By the names that studies use. A maker returns None where there is no record to draw.
FIGURES: dict[str, Callable[[Results], Picture | None]] = {
    "learning-curves": learning_curves,
    "client-accuracies": client_accuracies,
    "ppfe-stages": ppfe_stages,
    "sweep": sweep,
    "accuracy-bytes": accuracy_bytes,
    "accuracy-samples": accuracy_samples,
}


def make_figures(results: Results) -> list[Picture]:
    """All figures of a study that there are records for."""
    made = [FIGURES[name](results) for name in results.study.figures]
    return [picture for picture in made if picture is not None]
