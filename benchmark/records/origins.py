"""Where a run's rounds come from: what code computed them, and with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Origin = dict[str, Any]
"""A stretch of rounds computed alike: ``from_round`` and, as far as known, what the floats depend on."""

# What decides the floats, besides configuration and split: the code, and these entries of an environment.
# (Cores: PyTorch sums otherwise on more threads, and stacks of clients are cut by them.)
_DECIDING = ("code", "torch", "numpy", "processor", "cores", "device", "executor", "tf32")


def deciding(environment: Mapping[str, Any]) -> dict[str, Any]:
    """What the floats computed in this environment depend on."""
    return {name: environment[name] for name in _DECIDING if name in environment}


def continued(origins: Sequence[Origin], done: int, environment: Mapping[str, Any]) -> list[Origin]:
    """The stretches of a run that goes on after round `done` in this environment."""
    here = deciding(environment)
    if origins and all(origins[-1].get(name) == here.get(name) for name in _DECIDING):
        return list(origins)
    about = {"commit": environment["commit"]} if "commit" in environment else {}
    return [*origins, {"from_round": done + 1 if origins else 1, **about, **here}]


def foreign_rounds(origins: Sequence[Origin]) -> list[str]:
    """One line for every stretch of rounds that was computed otherwise than the last."""
    lines = []
    for place, origin in enumerate(origins[:-1]):
        different = [name for name in _DECIDING if origin.get(name) != origins[-1].get(name)]
        first, last = origin["from_round"], origins[place + 1]["from_round"] - 1
        if different:
            rounds = f"rounds {first}-{last} were" if first < last else f"round {first} was"
            lines.append(f"{rounds} computed with {', '.join(_in_words(origin, n) for n in different)}")
    return lines


def _in_words(origin: Origin, name: str) -> str:
    if name not in origin:
        return f"unknown {name}"
    if name == "code":
        return f"other code (commit {origin['commit']})" if origin.get("commit") else "other code"
    return f"{name} {origin[name]}"
