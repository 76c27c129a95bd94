"""The Python interface: ``from benchmark import run, load_records, compare_records``.

One file a function. They use what the command line uses; bad input raises `benchmark.errors.UserError`.
"""

from __future__ import annotations

from benchmark.interface.compare import compare_records
from benchmark.interface.load import load_records
from benchmark.interface.run import run

__all__ = ["compare_records", "load_records", "run"]
