"""Where a run's rounds come from: what code computed them, and with what."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Origin", "code_digest", "computing_files", "continued", "deciding", "foreign_rounds"]

Origin = dict[str, Any]
"""A stretch of rounds computed alike: ``from_round`` and, as far as known, what the floats depend on."""

_ROOT = Path(__file__).resolve().parents[2]
# The runner draws splits, schedules and initial weights.
_COMPUTING = ("algorithms", "benchmark/engine", "benchmark/models", "benchmark/runner.py", "datasets")
# What decides the floats, besides configuration and split: the code, and these entries of an environment.
# (Cores: PyTorch sums otherwise on more threads, and stacks of clients are cut by them.)
_DECIDING = ("code", "torch", "numpy", "processor", "cores", "device", "executor", "tf32")


@cache
def code_digest() -> str:
    """A digest of the code that computes rounds: methods, engine, networks, data and what sets them up."""
    digest = hashlib.sha256()
    for path in computing_files():
        digest.update(f"{path.relative_to(_ROOT).as_posix()}\0{_meaning(path.read_bytes())}\0".encode())
    return digest.hexdigest()


def _meaning(source: bytes) -> str:
    """A module without layout, comments and docstrings, none of which decides a float.

    The same under every version of Python; a file that is no Python counts byte by byte.
    """
    try:
        return repr(_told(ast.parse(source)))
    except (SyntaxError, ValueError):
        return source.hex()


def _told(part: Any) -> Any:
    """A part of a syntax tree as nested lists, without strings that stand alone."""
    if isinstance(part, list):
        return [_told(item) for item in part if not _stands_alone(item)]
    if not isinstance(part, ast.AST):
        return repr(part)
    # `ast.dump` would not do: from version to version it writes more, or fewer, of the fields that are empty.
    fields = sorted((name, _told(value)) for name, value in ast.iter_fields(part) if name != "kind")
    return [type(part).__name__, *([name, told] for name, told in fields if told != [])]


def _stands_alone(part: Any) -> bool:
    return isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)


def computing_files() -> list[Path]:
    """The source files that `code_digest` is made of."""
    files: list[Path] = []
    for place in (_ROOT / name for name in _COMPUTING):
        files += [place] if place.is_file() else sorted(p for p in place.rglob("*.py") if p.is_file())
    return files


def deciding(environment: Mapping[str, Any]) -> dict[str, Any]:
    """What the floats computed by this code in this environment depend on."""
    return {name: environment[name] for name in _DECIDING if name in environment} | {"code": code_digest()}


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
