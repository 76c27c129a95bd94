"""Classes and functions of a script or of a notebook's cell, whose text counts as code of runs."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import linecache
import sys
from types import FunctionType
from typing import Any

import numpy as np
from torch import Tensor

from pfl_benchmark.errors import UserError
from pfl_benchmark.records.sources import SOURCES

CELL = "cell_"  # begins the modules of what has no file
_VALUES = (int, float, str, tuple, np.ndarray, Tensor)
_KNOWN: dict[tuple[str, str], dict[str, str]] = {}  # `_fixed` of what was used, by file or text, and name


def keep_source(defined: Any) -> None:
    """Make the cell that defines a class or function its module, whose text is among the sources of runs.

    What a file defines is left as it is: the file's text counts.

    Raises:
        UserError: the text cannot be found, or does not say all: a value is taken from a function around it,
            or differs from that of an earlier run in this process.
    """
    functions = _functions(defined)
    if taken := [name for function in functions for name in _values_around(function)]:
        raise UserError(
            f"{defined.__name__} takes '{taken[0]}' from the function around it, which no record tells: make "
            "it a hyper-parameter of a method; of a network, define a class for each value"
        )
    file = getattr(sys.modules.get(defined.__module__), "__file__", None)
    lines = [line for function in functions for line in linecache.getlines(function.__code__.co_filename)]
    if not (file or lines):
        raise UserError(
            f"the code of {defined.__name__} cannot be found: define it in a cell of a notebook, or in a file"
        )
    text, fixed = "".join(lines), _fixed(defined)
    known = _KNOWN.setdefault((file or text, defined.__name__), fixed)
    if other := sorted(name for name in known | fixed if known.get(name) != fixed.get(name)):
        raise UserError(
            f"{defined.__name__} is another than in an earlier run ({other[0]} differs), but records know it "
            "by its name: give each a name of its own, or start anew"
        )
    if file is None:
        source = f"{text}\n_fixed = {fixed}\n".encode()
        defined.__module__ = f"{CELL}{hashlib.sha256(source).hexdigest()[:10]}"
        SOURCES[f"plugins/{defined.__module__}/{defined.__module__}.py"] = source


def _fixed(defined: Any) -> dict[str, str]:
    """Values of a class (or function) that its text may take from elsewhere: of attributes and defaults."""
    found = {"its place": defined.__qualname__}
    values: list[tuple[str, Any]] = [each for each in vars(defined).items() if not each[0].startswith("__")]
    for function in _functions(defined):
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        values += [(f"{function.__name__}(), default {i}", value) for i, value in enumerate(defaults)]
    for name, value in values:
        if isinstance(value, type) and value.__qualname__.startswith(f"{defined.__qualname__}."):
            found |= {f"{name}.{inner}": text for inner, text in _fixed(value).items()}
        elif isinstance(value, _VALUES) and " at 0x" not in repr(value):  # a tuple may hold functions
            found[name] = repr(value.tolist() if isinstance(value, np.ndarray | Tensor) else value)
    return found


def _functions(defined: Any) -> list[FunctionType]:
    """A function, or those of a class."""
    parts = [defined] if inspect.isfunction(defined) else vars(defined).values()
    parts = [part.fget if isinstance(part, property) else getattr(part, "__func__", part) for part in parts]
    return [part for part in parts if inspect.isfunction(part)]


def _values_around(function: FunctionType) -> list[str]:
    """Names of the numbers, texts and arrays that a function takes from the one that defines it."""
    found = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # nothing is in it yet
            if isinstance(cell.cell_contents, _VALUES):
                found.append(name)
    return found
