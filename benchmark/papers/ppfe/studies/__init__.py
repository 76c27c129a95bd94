"""The paper's studies: what is run for every table and figure, its claims, and what it leaves open."""

from pfl_benchmark.papers.ppfe.studies.tables import STUDIES

__all__ = ["STUDIES"]
