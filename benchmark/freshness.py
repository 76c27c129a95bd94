"""Whether a finished run was computed by the code that is here now."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from algorithms import find
from benchmark.engine.origins import code_digest

__all__ = ["code_of", "outdated"]


def code_of(algo: str) -> str:
    """A digest of the code that computes a method's rounds: its own, the engine's, networks' and data's."""
    return code_digest(Path(inspect.getfile(find(algo))).resolve())


def outdated(algo: str, summary: Mapping[str, Any]) -> bool:
    """Whether other code than this made a record. False for records that do not tell (older ones)."""
    made = summary["environment"].get("code")
    return made is not None and made != code_of(algo)
