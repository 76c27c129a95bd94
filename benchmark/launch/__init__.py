"""Launchers: where the cells of a study run, and how many at once.

Every module of this package registers what it defines; a further launcher is one more file. None of them is
known to the engine: a cell is the same run everywhere.
"""

from __future__ import annotations

import importlib
import pkgutil

from benchmark.launch.base import Launcher, Options, Outcome, Watcher
from benchmark.launch.registry import LAUNCHERS, find, register

__all__ = ["LAUNCHERS", "Launcher", "Options", "Outcome", "Watcher", "find", "register"]

for _module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
    importlib.import_module(_module.name)
