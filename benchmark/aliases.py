"""One name for each module of a checkout, where its folders can be imported by their own names, too.

``python -m benchmark`` and ``import algorithms`` find the folders of the checkout; the modules in them are
those of `pfl_benchmark`, and never loaded a second time. Nothing here is used by an installed package.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType

__all__ = ["install"]

_NAMES = {"benchmark": "pfl_benchmark", "algorithms": "pfl_benchmark.algorithms"}
_DATASETS = Path(__file__).resolve().parent.parent / "datasets"


class _Aliases(MetaPathFinder, Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        first, _, rest = name.partition(".")
        if not rest or rest == "__main__":
            return None
        if first in _NAMES and sys.modules.get(first) is sys.modules.get(_NAMES[first]):
            return spec_from_loader(name, self)
        if first == "datasets" and path and {Path(place).resolve() for place in path} == {_DATASETS}:
            raise ModuleNotFoundError(f"{name} is pfl_benchmark.{name}: import it by that name", name=name)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        first, _, rest = spec.name.partition(".")
        found = importlib.import_module(f"{_NAMES[first]}.{rest}")
        spec.loader_state = found.__spec__  # the import system is about to overwrite it
        return found

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Let the import system know."""
    if not any(isinstance(finder, _Aliases) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Aliases())
