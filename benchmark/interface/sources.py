"""Classes and functions of a script or of a notebook's cell, whose text counts as code of runs."""

from __future__ import annotations

import hashlib
import inspect
import linecache
import sys
from typing import Any

from pfl_benchmark.errors import UserError
from pfl_benchmark.records.sources import SOURCES

CELL = "cell_"  # begins the modules of what has no file


def keep_source(defined: Any) -> None:
    """Make the cell that defines a class or function its module, whose text is among the sources of runs.

    What a file defines is left as it is: the file's text counts.

    Raises:
        UserError: the text cannot be found.
    """
    if getattr(sys.modules.get(defined.__module__), "__file__", None) is not None:
        return
    parts = [defined] if inspect.isfunction(defined) else vars(defined).values()
    functions = [part for part in parts if inspect.isfunction(part)]
    lines = [line for function in functions for line in linecache.getlines(function.__code__.co_filename)]
    if not lines:
        raise UserError(
            f"the code of {defined.__name__} cannot be found: define it in a cell of a notebook, or in a file"
        )
    source = "".join(lines).encode()
    defined.__module__ = f"{CELL}{hashlib.sha256(source).hexdigest()[:10]}"
    SOURCES[f"plugins/{defined.__module__}/{defined.__module__}.py"] = source
