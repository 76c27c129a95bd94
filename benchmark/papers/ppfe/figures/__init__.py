"""Figures that only this paper needs."""

from pfl_benchmark.papers.ppfe.figures.specification import specification_curve
from pfl_benchmark.papers.ppfe.figures.stages import ppfe_stages

__all__ = ["FIGURES"]

FIGURES = {"ppfe-stages": ppfe_stages, "specification-curve": specification_curve}
