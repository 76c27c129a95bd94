"""The partition laws, one file each: options, checks, names and words, and the dealing itself.

Every module of this package registers what it defines; nothing else needs to be edited.
"""

from __future__ import annotations

import importlib
import pkgutil

from pfl_benchmark.datasets.laws.base import LAWS, ByLabels, Law, find_law, option, register

__all__ = ["LAWS", "OPTIONS", "ByLabels", "Law", "find_law", "option", "register"]

for _module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
    importlib.import_module(_module.name)

# Of all laws, by name; laws that share an option share its class.
OPTIONS = {name: spec for law in LAWS.values() for name, spec in law.options().items()}
