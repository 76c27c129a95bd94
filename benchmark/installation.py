"""Where this program is: in a checkout, or installed as a package. Needs nothing but Python."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

__all__ = ["CHECKOUT", "PROGRAM", "requirements", "with_program"]

_PACKAGE = Path(__file__).resolve().parent
CHECKOUT = _PACKAGE.parent if _PACKAGE.name == "benchmark" else None  # None: installed
_MODULE, _SCRIPT = "python -m benchmark", "pfl-benchmark"
# How the program is started here. A checkout that pip has installed (`-e`) has both forms.
PROGRAM = _MODULE if CHECKOUT and Path(sys.argv[0]).stem != _SCRIPT else _SCRIPT


def with_program(text: str) -> str:
    """Text for a person at this terminal: commands in it begin with `PROGRAM`."""
    return text.replace(_MODULE, PROGRAM)


def requirements() -> dict[str, str]:
    """What this program cannot do without: requirements such as ``numpy>=1.26`` by the package's name."""
    if CHECKOUT:
        text = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
        # Python has a reader of TOML since 3.11; `doctor` has to tell those who have an older one.
        listed = re.findall(r'"(.+?)"', re.findall(r"(?ms)^dependencies = \[(.*?)^\]", text)[0])
    else:
        listed = importlib.metadata.requires("pfl-benchmark") or []
    found = [text for text in listed if ";" not in text]  # the others are of extras
    return {re.split(r"[^\w.-]", text, maxsplit=1)[0]: text for text in found}
