"""The methods, one file (or folder) each, holding only what differs.

Every module of this package registers what it defines; nothing else needs to be edited.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

from pfl_benchmark.engine.registry import ALGORITHMS, called, find, needed, register

__all__ = ["ALGORITHMS", "called", "find", "needed", "register"]

if __name__ == "algorithms":  # the folder of a checkout
    sys.modules[__name__] = importlib.import_module("pfl_benchmark.algorithms")
else:
    for _module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
        importlib.import_module(_module.name)
