"""The formats of tables, one file each.

Every module of this package registers what it defines; nothing else needs to be edited.
"""

from __future__ import annotations

import importlib
import pkgutil

from pfl_benchmark.render.registry import FORMATS, Format

__all__ = ["FORMATS", "Format"]

for _module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
    importlib.import_module(_module.name)
