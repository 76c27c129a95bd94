"""The paper's studies: what is run for every table and figure, its claims, and what it leaves open.

A file each where they are rows and columns; those that compute something are written in Python.
"""

from pfl_benchmark.papers.ppfe.studies.claims import CLAIMS
from pfl_benchmark.papers.ppfe.studies.computed import Kept
from pfl_benchmark.papers.ppfe.studies.prediction import PREDICTION
from pfl_benchmark.papers.ppfe.studies.shared import study
from pfl_benchmark.papers.ppfe.studies.tuning import OWN_POINTS, RATES, TUNING
from pfl_benchmark.studies.grid import Study

__all__ = ["STUDIES"]

_SYNTHETIC = Study(
    "synthetic",
    "Synthetic linear data: test error of closed-form estimators",
    tables=(),
    computed=Kept("synthetic", "pfl_benchmark.papers.ppfe.studies.synthetic"),
    shows="Ridge regressions with known optimum: when sharing a layer helps, and when it harms.",
)

STUDIES = (
    study("main"),
    CLAIMS,
    *map(study, ("distinct", "sparse", "dirichlet", "reduction", "fixed-heads", "progression")),
    *map(study, ("data-size", "heterogeneity")),
    _SYNTHETIC,
    *map(study, ("communication", "budgets", "targets", "new-clients")),
    PREDICTION,
    *map(study, ("calibration", "protocols")),
    TUNING,
    RATES,
    OWN_POINTS,
    *map(study, ("tuned", "switches", "readings", "batches", "multiverse")),
)
