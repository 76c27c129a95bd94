"""Where this program is: in a checkout, or installed as a package. Needs nothing but Python."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

__all__ = ["CHECKOUT", "PACKAGE", "PROGRAM", "requirements", "with_program"]

_HERE = Path(__file__).resolve().parent
CHECKOUT = _HERE.parent if _HERE.name == "benchmark" else None  # None: installed
PACKAGE = CHECKOUT / "pfl_benchmark" if CHECKOUT else _HERE  # the folder that has the package's name
_MODULE, _SCRIPT = "python -m benchmark", "pfl-benchmark"
# How the program is started. A checkout that is not on the path has been installed by `pip install -e`.
PROGRAM = _MODULE if CHECKOUT in {Path(entry).resolve() for entry in sys.path} else _SCRIPT


def with_program(text: str) -> str:
    """Text for a person at this terminal: commands in it begin with `PROGRAM`."""
    return text.replace(_MODULE, PROGRAM)


def requirements(optional: bool = False) -> dict[str, str]:
    """Requirements such as ``numpy>=1.26`` by the package's name: those without which nothing works.

    Args:
        optional: those of the extras instead.
    """
    if CHECKOUT:
        text = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
        # Python has a reader of TOML since 3.11; `doctor` has to tell those who have an older one.
        block = r"^\[project.optional-dependencies\](.*?)^\[" if optional else r"^dependencies = \[(.*?)^\]"
        found = re.findall(r'"(.+?)"', re.findall("(?ms)" + block, text)[0])
    else:
        listed = importlib.metadata.requires("pfl-benchmark") or []  # those of extras have a ";"
        found = [text.partition(";")[0].strip() for text in listed if (";" in text) == optional]
    return {re.split(r"[^\w.-]", text, maxsplit=1)[0]: text for text in found}
