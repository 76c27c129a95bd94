"""The rows of tables: the methods of the paper, and variants of PPFE."""

from __future__ import annotations

from pfl_benchmark.studies.grid import Variant

__all__ = [
    "ABLATIONS",
    "BASELINES",
    "FEW_METHODS",
    "FIXED_HEADS",
    "METHODS",
    "PREVIOUS",
    "PROGRESSION",
    "REDUCTION",
    "SPARSE",
    "method",
]

METHODS = (
    Variant("Local Only", "local"),
    Variant("FedAvg", "fedavg"),
    Variant("FedAvg+FT", "fedavg-ft"),
    Variant("Ditto", "ditto"),
    Variant("FedBABU", "fedbabu"),
    Variant("FedRep", "fedrep"),
    Variant("FedPer", "fedper"),
    Variant("LG-FedAvg", "lg-fedavg"),
    Variant("pFedFDA", "pfedfda"),
    Variant("PPFE", "ppfe"),
)
BASELINES, _PPFE = METHODS[:-1], METHODS[-1]


def method(algo: str) -> Variant:
    """A method's own row, at its defaults."""
    return next(row for row in METHODS if row.algo == algo)


FEW_METHODS = tuple(row for row in METHODS if row.algo in ("local", "fedavg", "fedavg-ft", "fedper", "ppfe"))
SPARSE = (Variant("PPFE (SVD)", "ppfe"), Variant("PPFE (Sparse)", "ppfe", "sparse"))
REDUCTION = (
    Variant("With MR", "ppfe", paper="PPFE (with MR)"),
    Variant("Without MR", "ppfe", "no-reduction", paper="PPFE (without MR)"),
)
# The reading that contradicts fewest of the paper's sentences, but diverges on CIFAR-100: results/ppfe.md.
PREVIOUS = Variant("PPFE (prev)", "ppfe", paper="PPFE", hyper={"fc_init": "prev"})
FIXED_HEADS = (*(Variant(f"M{n}", "ppfe", f"fixed-head-{n}") for n in (1, 2, 3)), _PPFE)
PROGRESSION = (
    Variant("WP", "ppfe", "no-progression"),
    Variant("WPW", "ppfe", "no-progression-no-reweighting"),
    _PPFE,
)
# Every variant of PPFE once, to stand beside the methods.
ABLATIONS = (
    PREVIOUS,
    Variant("PPFE (without MR)", "ppfe", "no-reduction"),
    SPARSE[1],
    *FIXED_HEADS[:-1],
    *PROGRESSION[:-1],
)
