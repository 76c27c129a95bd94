"""Arguments that several functions of the interface take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pfl_benchmark.errors import UserError
from pfl_benchmark.resolve.plugins import load_plugins


def load_named(plugins: Sequence[str | Path]) -> None:
    """Load plugins, those of the environment first; UserError: no list of files and modules, or unusable."""
    if isinstance(plugins, str | Path) or not all(isinstance(each, str | Path) for each in plugins):
        raise UserError(f"plugins is {plugins!r:.60}; expected a list of Python files or modules")
    load_plugins([str(each) for each in plugins])


def each_once(seeds: Sequence[int]) -> Sequence[int]:
    """Several seeds; UserError: none, one twice, or no whole numbers."""
    if not seeds or not all(type(each) is int for each in seeds) or len({*seeds}) < len(seeds):
        raise UserError(f"seed is {seeds!r:.60}; expected whole numbers, each once, such as seed=[0, 1, 2]")
    return seeds
