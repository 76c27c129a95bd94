"""The partitioners, one file each: options, checks, names and words, and the dealing itself.

Every module of this package registers what it defines; nothing else needs to be edited.
"""

from __future__ import annotations

import importlib
import pkgutil

from pfl_benchmark.datasets.partitioners.base import (
    PARTITIONERS,
    ByLabels,
    Partitioner,
    find_partitioner,
    option,
    register,
)

__all__ = ["OPTIONS", "PARTITIONERS", "ByLabels", "Partitioner", "find_partitioner", "option", "register"]

for _module in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
    importlib.import_module(_module.name)

# Of all partitioners, by name; partitioners that share an option share its class.
OPTIONS = {
    name: spec for partitioner in PARTITIONERS.values() for name, spec in partitioner.options().items()
}
