"""The shifts, one file each: what becomes of clients' samples after the split.

Every module of this package registers what it defines; nothing else needs to be edited.
"""

from __future__ import annotations

import importlib
import pkgutil

from pfl_benchmark.datasets.shifts.base import (
    JOINT,
    NO_SHIFT,
    SHIFTS,
    About,
    Draw,
    Shift,
    Shifted,
    apply_shifts,
    in_text,
    option,
    read_shifts,
    register,
)
from pfl_benchmark.datasets.shifts.samples import ClientSamples

__all__ = [
    "JOINT",
    "NO_SHIFT",
    "SHIFTS",
    "About",
    "ClientSamples",
    "Draw",
    "Shift",
    "Shifted",
    "apply_shifts",
    "in_text",
    "option",
    "read_shifts",
    "register",
]

for _module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
    importlib.import_module(_module.name)
