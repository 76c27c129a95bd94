"""The datasets by name: those of `datasets.catalogue`, one module each (`INFO`), and those of plugins."""

from __future__ import annotations

import importlib
import pkgutil

from pfl_benchmark.datasets import catalogue
from pfl_benchmark.datasets.data import DatasetInfo

__all__ = ["DATASETS", "MODULES", "register"]

DATASETS: dict[str, DatasetInfo] = {}
MODULES: dict[str, str] = {}  # that define them


def register(info: DatasetInfo, module: str) -> None:
    """Make a dataset known by its name.

    Args:
        module: the ``__name__`` of the module that defines it.

    Raises:
        ValueError: the name is taken.
    """
    if info.name in DATASETS:
        raise ValueError(f"two datasets are called '{info.name}'")
    DATASETS[info.name], MODULES[info.name] = info, module


for _name in sorted(
    module.name for module in pkgutil.iter_modules(catalogue.__path__, f"{catalogue.__name__}.")
):
    register(importlib.import_module(_name).INFO, _name)
