"""The methods, one file (or folder) each, holding only what differs.

Every module of this package registers what it defines; nothing else needs to be edited.
"""

from __future__ import annotations

import importlib
import pkgutil

from algorithms.registry import ALGORITHMS, find, register

__all__ = ["ALGORITHMS", "find", "register"]

for _module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
    importlib.import_module(_module.name)
