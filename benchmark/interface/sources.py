"""Classes and functions of a script or of a notebook's cell, whose text counts as code of runs."""

from __future__ import annotations

import contextlib
import dis
import hashlib
import inspect
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pfl_benchmark.errors import UserError
from pfl_benchmark.records.sources import SOURCES, TOLD

CELL = "cell_"  # begins the modules of what scripts and cells define
_TEXTS: dict[str, str] = {}  # by such a module
_AROUND = (int, float, str, tuple, np.generic, np.ndarray, Tensor)
_UNKNOWN = "?"


def keep_source(defined: Any) -> None:
    """Give a class or function of a script or cell a module of its own, which is among the sources of runs.

    It holds the text of the script or cell, and the plain values that this takes from elsewhere: attributes,
    defaults and global variables. What an imported file defines is left as it is: the file's text counts.

    Raises:
        UserError: the text cannot be found, or does not say all: a value is taken from a function around it.
    """
    functions = _functions(defined)
    if taken := [name for function in functions for name in _values_around(function)]:
        raise UserError(
            f"{defined.__name__} takes '{taken[0]}' from the function around it, which no record tells: make "
            "it a hyper-parameter of a method; of a network, define a class for each value"
        )
    if not _is_loose(defined):
        return
    text, values = _text(defined), dict(sorted(_values(defined)))
    source = (f"{text}\n_values = {values}\n" if values else text).encode()
    defined.__module__ = f"{CELL}{hashlib.sha256(source).hexdigest()[:10]}"
    _TEXTS[defined.__module__] = text
    SOURCES[f"plugins/{defined.__module__}/{defined.__module__}.py"] = source


def _is_loose(defined: Any) -> bool:
    """Whether a script or cell defines it, not a file that is imported."""
    return defined.__module__ == "__main__" or defined.__module__ not in sys.modules


def _text(defined: Any) -> str:
    """Of the script or cell; UserError: it cannot be found."""
    if defined.__module__ in _TEXTS:
        return _TEXTS[defined.__module__]
    if file := getattr(sys.modules.get(defined.__module__), "__file__", None):
        return Path(file).read_text(encoding="utf-8", errors="replace")
    files = dict.fromkeys(function.__code__.co_filename for function in _functions(defined))
    lines = [line for file in files for line in linecache.getlines(file)]
    if not lines:
        raise UserError(
            f"the code of {defined.__name__} cannot be found: define it in a cell of a notebook, or in a file"
        )
    return "".join(lines)


def _values(defined: Any) -> Iterator[tuple[str, str]]:
    """What a class (with its bases) or function takes from elsewhere than its text, by name."""
    if "<locals>" in defined.__qualname__:  # of which a text may have several
        yield "place", defined.__qualname__
    for part in inspect.getmro(defined) if isinstance(defined, type) else (defined,):
        if part is not defined and not _is_loose(part):
            continue
        if part is not defined:
            yield f"base {part.__name__}", hashlib.sha256(_text(part).encode()).hexdigest()
        for name, value in vars(part).items():
            if not name.startswith("__") and name not in TOLD and (plain := _plain(value)) != _UNKNOWN:
                yield f"{part.__name__}.{name}", plain
        for function in _functions(part):
            defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
            used = {name: function.__globals__.get(name, function) for name in _globals(function.__code__)}
            for name, value in (*enumerate(defaults), *sorted(used.items())):
                if not isinstance(value, type) and (plain := _plain(value)) != _UNKNOWN:
                    yield f"{part.__name__}.{function.__name__}() {name}", plain


def _globals(code: CodeType) -> set[str]:
    """The global variables that a function and those inside it read."""
    found = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return found.union(*(_globals(part) for part in code.co_consts if isinstance(part, CodeType)))


def _plain(value: Any) -> str:
    """A value in words that are the same in every process; `_UNKNOWN` for all but plain values."""
    if isinstance(value, np.ndarray):
        value = np.ascontiguousarray(value)
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, Tensor):
        own = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(own.tobytes()).hexdigest()}"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{_plain(key)}: {_plain(item)}' for key, item in value.items())})"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}({', '.join(map(_plain, value))})"
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({', '.join(sorted(map(_plain, value)))})"
    if isinstance(value, type):
        return value.__qualname__
    value = value.item() if isinstance(value, np.generic) else value
    return repr(value) if value is None or isinstance(value, bool | int | float | str) else _UNKNOWN


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
            if isinstance(cell.cell_contents, _AROUND):
                found.append(name)
    return found
