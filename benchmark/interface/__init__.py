"""The Python interface: ``from pfl_benchmark import run, load_records, ...``.

One file a function. They use what the command line uses; bad input raises `errors.UserError`.
"""

from __future__ import annotations

from pfl_benchmark.interface.compare import compare_records
from pfl_benchmark.interface.federated import federated
from pfl_benchmark.interface.grid import grid
from pfl_benchmark.interface.load import load_records
from pfl_benchmark.interface.outputs import load_model, load_predictions
from pfl_benchmark.interface.plot import plot_curves
from pfl_benchmark.interface.run import run

__all__ = [
    "compare_records",
    "federated",
    "grid",
    "load_model",
    "load_predictions",
    "load_records",
    "plot_curves",
    "run",
]
