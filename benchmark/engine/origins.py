"""Where a run's rounds come from: what code computed them, and with what."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Origin", "begun_elsewhere", "code_digest", "continued"]

Origin = dict[str, Any]
"""A stretch of rounds computed alike: ``from_round`` and, as far as known, what the floats depend on."""

_ROOT = Path(__file__).resolve().parents[2]
_COMPUTING = ("algorithms", "benchmark/engine", "benchmark/models")
_DECIDING = ("code", "torch", "processor", "device", "executor", "tf32")  # of an environment: for the floats
_NAMED = ("commit", *_DECIDING)


@cache
def code_digest() -> str:
    """A digest of the code that computes rounds: methods, engine and networks."""
    digest = hashlib.sha256()
    for folder in _COMPUTING:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(_ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def continued(origins: Sequence[Origin], done: int, environment: Mapping[str, Any]) -> list[Origin]:
    """The stretches of a run that goes on after round `done` in this environment."""
    here = {name: environment[name] for name in _NAMED if name in environment} | {"code": code_digest()}
    if origins and all(origins[-1].get(name) == here.get(name) for name in _DECIDING):
        return list(origins)
    return [*origins, {"from_round": done + 1 if origins else 1, **here}]


def begun_elsewhere(origins: Sequence[Origin]) -> list[str]:
    """One line for every change of code or machine within a run."""
    lines = []
    for before, after in itertools.pairwise(origins):
        changed = [
            "code" if name == "code" else f"{name} {before[name]}"
            for name in _DECIDING
            if name in before and before[name] != after.get(name)
        ]
        source = f" (commit {before['commit']})" if before.get("commit") else ""
        lines.append(
            f"rounds {before['from_round']}-{after['from_round'] - 1} were computed before the run was "
            f"resumed, with other {' and '.join(changed) or 'code, it is not known which'}{source}"
        )
    return lines
