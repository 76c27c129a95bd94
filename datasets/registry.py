"""The datasets by name: every module of `datasets.catalogue` defines one as `INFO`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from datasets import catalogue
from datasets.data import DatasetInfo

__all__ = ["DATASETS"]


def _collect() -> dict[str, DatasetInfo]:
    names = sorted(module.name for module in pkgutil.iter_modules(catalogue.__path__))
    infos = [importlib.import_module(f"{catalogue.__name__}.{name}").INFO for name in names]
    return {info.name: info for info in infos}


DATASETS: Mapping[str, DatasetInfo] = MappingProxyType(_collect())
