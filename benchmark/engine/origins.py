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
def code_digest(method: Path | None = None) -> str:
    """A digest of the code that computes rounds: methods, engine, networks, data and what sets them up.

    Args:
        method: a method's source file; of `algorithms` then only this and what it imports count.
    """
    digest = hashlib.sha256()
    for path in computing_files(method):
        digest.update(f"{path.relative_to(_ROOT).as_posix()}\0{_meaning(path.read_bytes())}\0".encode())
    return digest.hexdigest()


@cache
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


def computing_files(method: Path | None = None) -> list[Path]:
    """The source files that `code_digest` is made of."""
    files: list[Path] = []
    for place in (_ROOT / name for name in _COMPUTING):
        files += [place] if place.is_file() else sorted(p for p in place.rglob("*.py") if p.is_file())
    methods = _ROOT / "algorithms"
    if method is None or methods not in method.parents:
        return files
    used = {methods / "__init__.py", *_imported(method, methods)}
    return [path for path in files if path in used or methods not in path.parents]


def _imported(method: Path, methods: Path) -> set[Path]:
    """The files of a method and of all that it imports from the folder of methods (packages as a whole)."""
    found: set[Path] = set()
    units = [methods / method.relative_to(methods).parts[0]]
    while units:
        unit = units.pop()
        for path in [unit] if unit.is_file() else unit.rglob("*.py"):
            if path not in found:
                found.add(path)
                for name in _names(path, methods.name):
                    units += [methods / name, methods / f"{name}.py"]
    return found


def _names(path: Path, package: str) -> set[str]:
    """What a module imports from a package, by its name or relatively: the first parts behind it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package if node.level else (node.module or "")
            inner = [node.module] if node.level and node.module else [alias.name for alias in node.names]
            dotted = [f"{start}.{name}" for name in inner]
        else:
            continue
        parts = [name.split(".") for name in dotted]
        names.update(found[1] for found in parts if found[0] == package and len(found) > 1)
    return names


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
