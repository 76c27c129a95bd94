"""A method that is written in a script or in a cell of a notebook."""

from __future__ import annotations

import hashlib
import inspect
import linecache
import sys

from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.registry import ALGORITHMS, register
from pfl_benchmark.errors import UserError
from pfl_benchmark.records.sources import SOURCES

_CELL = "cell_"  # begins the modules of classes that have no file


def name_of(algo: str | type[Algorithm]) -> str:
    """The name of a method; a class becomes known by it.

    A class of a notebook takes the place of one that an earlier run of its cell defined. The text of its cell
    counts as its code, so that records say when it has changed since.

    Raises:
        UserError: no method, one whose name is taken, or one whose code cannot be found.
    """
    if isinstance(algo, str):
        return algo
    if not (isinstance(algo, type) and issubclass(algo, Algorithm)):
        raise UserError(f"algo is {algo!r:.60}; expected the name of a method, or a subclass of Algorithm")
    known = ALGORITHMS.get(getattr(algo, "name", ""))
    if known is algo and algo.__module__.startswith(_CELL):
        return algo.name
    if known is not None and known is not algo:
        if not known.__module__.startswith((_CELL, "__main__")):
            raise UserError(f"there is a method '{algo.name}' already; give {algo.__name__} another name")
        del ALGORITHMS[algo.name]
    if known is not algo:
        try:
            register(algo)
        except ValueError as error:
            raise UserError(f"{error}") from error
    if getattr(sys.modules.get(algo.__module__), "__file__", None) is None:
        _keep_source(algo)
    return algo.name


def _keep_source(algo: type[Algorithm]) -> None:
    """Make the cell that defines a class its module, whose text is among the sources of runs."""
    functions = [part for part in vars(algo).values() if inspect.isfunction(part)]
    lines = [line for function in functions for line in linecache.getlines(function.__code__.co_filename)]
    if not lines:
        raise UserError(
            f"the code of {algo.__name__} cannot be found: define it in a cell of a notebook, or in a file"
        )
    source = "".join(lines).encode()
    algo.__module__ = f"{_CELL}{hashlib.sha256(source).hexdigest()[:10]}"
    SOURCES[f"plugins/{algo.__module__}/{algo.__module__}.py"] = source
