"""The datasets by name: every module of `datasets.catalogue` defines one as `INFO`, and those modules."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from datasets import catalogue
from datasets.data import DatasetInfo

__all__ = ["DATASETS", "MODULES"]


def _collect() -> list[tuple[DatasetInfo, str]]:
    modules = sorted(
        module.name for module in pkgutil.iter_modules(catalogue.__path__, f"{catalogue.__name__}.")
    )
    return [(importlib.import_module(name).INFO, name) for name in modules]


_FOUND = _collect()
DATASETS: Mapping[str, DatasetInfo] = MappingProxyType({info.name: info for info, _ in _FOUND})
MODULES: Mapping[str, str] = MappingProxyType({info.name: module for info, module in _FOUND})
