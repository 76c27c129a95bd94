"""Figures made from the records of a study, as SVG and PNG; papers add their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from pfl_benchmark.present.figures.clients import client_accuracies
from pfl_benchmark.present.figures.critical import critical_difference
from pfl_benchmark.present.figures.curves import CURVES
from pfl_benchmark.present.figures.rank_map import rank_map
from pfl_benchmark.present.figures.sweep import sweep
from pfl_benchmark.present.figures.trade_off import trade_off
from pfl_benchmark.render.picture import Picture
from pfl_benchmark.studies.papers import makers
from pfl_benchmark.studies.results import Results

__all__ = ["GENERAL", "make_figures"]

# A maker returns None where there is no record to draw.
GENERAL: dict[str, Callable[[Results], Picture | None]] = {
    **CURVES,
    "client-accuracies": client_accuracies,
    "critical-difference": critical_difference,
    "rank-map": rank_map,
    "sweep": sweep,
    "trade-off": trade_off,
}


def make_figures(results: Results) -> list[Picture]:
    """All figures of a study that there are records for; their names begin with the study's."""
    known, study = GENERAL | makers("figures"), results.study.name
    made = (known[name](results) for name in results.study.figures)
    return [
        picture
        if picture.name.startswith(study)
        else dataclasses.replace(picture, name=f"{study}-{picture.name}")
        for picture in made
        if picture is not None
    ]
