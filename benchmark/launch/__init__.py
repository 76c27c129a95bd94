"""Launchers: where the runs of a study run, and how many at once.

Every module of this package registers what it defines; a further launcher is one more file. The engine knows
none of them: a run is the same run everywhere.
"""

from __future__ import annotations

import importlib
import pkgutil

from pfl_benchmark.launch.base import BatchReport, Launcher, Options
from pfl_benchmark.launch.registry import add_flags, find, flags_of

__all__ = ["BatchReport", "Launcher", "Options", "add_flags", "find", "flags_of"]

for _module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
    importlib.import_module(_module.name)
