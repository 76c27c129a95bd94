"""The methods as rows of tables."""

from __future__ import annotations

from algorithms import ALGORITHMS
from benchmark.studies.grid import Variant

__all__ = ["METHODS", "PPFE"]

_OF_THE_PAPER = (
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
PPFE = _OF_THE_PAPER[-1]
# A method that is registered beside them joins their tables.
METHODS = (
    *_OF_THE_PAPER,
    *(
        Variant(method.title, name)
        for name, method in sorted(ALGORITHMS.items())
        if name not in {row.algo for row in _OF_THE_PAPER}
    ),
)
