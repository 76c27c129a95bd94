"""The harness: command line, runs, records; see README.md.

``from pfl_benchmark import run, grid, load_records, ...`` is the Python interface (`interface`).
It is imported when it is used: it loads PyTorch, and this package does not.
"""

import importlib
import sys

from pfl_benchmark.installation import CHECKOUT

__version__ = "0.2.0"
__all__ = [
    "__version__", "compare_records", "federated", "grid", "load_model", "load_predictions", "load_records",
    "plot_curves", "run",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """The functions of `interface`."""
    if name not in __all__:
        raise AttributeError(f"module 'pfl_benchmark' has no attribute '{name}'")
    return getattr(importlib.import_module("pfl_benchmark.interface"), name)


def __dir__() -> list[str]:
    """Also what is not imported yet."""
    return sorted({*globals(), *__all__})


if CHECKOUT:
    importlib.import_module("pfl_benchmark.aliases").install()
    if __name__ == "benchmark":
        sys.modules[__name__] = importlib.import_module("pfl_benchmark")
