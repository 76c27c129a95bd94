"""The harness: command line, runs, records; see README.md.

``from benchmark import run, load_records, compare_records`` is the Python interface
(`benchmark.interface`). It is imported when it is used: it loads PyTorch, and this package does not.
"""

import importlib

__version__ = "0.1.0"
__all__ = ["__version__", "compare_records", "load_records", "run"]


def __getattr__(name: str) -> object:
    """The functions of `benchmark.interface`."""
    if name not in __all__:
        raise AttributeError(f"module 'benchmark' has no attribute '{name}'")
    return getattr(importlib.import_module("benchmark.interface"), name)


def __dir__() -> list[str]:
    """Also what is not imported yet."""
    return sorted({*globals(), *__all__})
