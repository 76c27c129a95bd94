"""Which parts of the code that computes rounds a plugin has replaced in this process."""

from __future__ import annotations

import ast
import inspect
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from pfl_benchmark.records.sources import SOURCES

_LIBRARY = sysconfig.get_path("stdlib")  # whose decorators and dataclasses make functions of ours


@dataclass(frozen=True)
class _Written:
    """What stands in a module's file."""

    codes: frozenset[CodeType]  # of all functions
    functions: frozenset[str]  # names of functions of the module, and of its classes after a dot
    imported: Mapping[str, tuple[str, str]]  # from modules of this package: the module, and the name there
    constants: Mapping[str, Any]  # values of literals, of the module and of its classes after a dot
    bound: frozenset[str]  # all that classes assign or define


def altered() -> dict[str, str]:
    """What is not as its file says, such as ``engine.message.WeightedMean.value``, and what stands there.

    Functions, names imported within the package, and literals of modules and classes are looked at.
    """
    found: dict[str, str] = {}
    for path, source in SOURCES.items():
        name = path.removeprefix("benchmark/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if not path.startswith("plugins/") and f"pfl_benchmark.{name}" in sys.modules:
            for part, now in _differences(f"pfl_benchmark.{name}", _written(source)):
                found[f"{name}.{part}"] = now
    return found


def _differences(module: str, written: _Written) -> Iterator[tuple[str, str]]:
    here = vars(sys.modules[module])
    owners = [("", here), *((f"{name}.", vars(cls)) for name, cls in here.items() if _is_own(cls, module))]
    for prefix, owner in owners:
        for name, value in owner.items():
            function, key = _function(value), f"{prefix}{name}"
            foreign = function is None or _is_foreign(function, written.codes)
            replaced = key in written.functions and foreign
            changed = key in written.constants and value != written.constants[key]
            added = prefix and key not in written.bound and not name.startswith("_")  # over that of a base
            if replaced or changed or added:
                yield key, _told(value)
    for name, (home, original) in written.imported.items():
        there = vars(sys.modules[home]).get(original) if home in sys.modules else None
        own = (function := _function(here.get(name))) is not None and function.__module__ == home
        if there is not None and here.get(name) is not there and not own:  # own: it was replaced there
            yield name, _told(here.get(name))


def _is_own(value: Any, module: str) -> bool:
    return isinstance(value, type) and value.__module__ == module


def _function(value: Any) -> FunctionType | None:
    """The function behind a method, property or decorated function."""
    value = value.fget if isinstance(value, property) else getattr(value, "func", value)
    value = inspect.unwrap(getattr(value, "__func__", value))
    return value if isinstance(value, FunctionType) else None


def _told(value: Any) -> str:
    """What a function does, without where it stands; of all else its `repr`."""
    function = _function(value)
    return repr(value) if function is None else repr(_content(function.__code__))


def _content(code: CodeType) -> tuple[Any, ...]:
    constants = [_content(part) if isinstance(part, CodeType) else part for part in code.co_consts]
    return code.co_code, code.co_names, constants


def _is_foreign(function: FunctionType, codes: frozenset[CodeType]) -> bool:
    """Whether a function stands in another file than its module's, and not in Python's library."""
    made = function.__code__.co_filename
    return function.__code__ not in codes and not made.startswith(("<string>", _LIBRARY))


@cache
def _written(source: bytes) -> _Written:
    functions, constants, bound = set[str](), dict[str, Any](), set[str]()
    imported: dict[str, tuple[str, str]] = {}
    tree = ast.parse(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for prefix, body in [("", tree.body), *((f"{node.name}.", node.body) for node in classes)]:
        for node in body:
            match node:
                case ast.FunctionDef(name=name):
                    functions.add(f"{prefix}{name}")
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    _add_literal(constants, f"{prefix}{name}", value)
                case ast.ImportFrom(module=str(home), names=names) if home.startswith("pfl_benchmark"):
                    imported |= {alias.asname or alias.name: (home, alias.name) for alias in names}
    for node in classes:
        inner = [part for part in ast.walk(node) if isinstance(part, ast.Name | ast.FunctionDef)]
        bound |= {f"{node.name}.{part.id if isinstance(part, ast.Name) else part.name}" for part in inner}
    codes = frozenset(_codes(compile(source, "<own>", "exec", dont_inherit=True)))
    return _Written(codes, frozenset(functions), imported, constants, frozenset(bound))


def _add_literal(constants: dict[str, Any], name: str, value: ast.expr) -> None:
    """Note a literal; empty containers are filled when the program begins."""
    try:
        literal = ast.literal_eval(value)
    except (ValueError, TypeError):
        return
    if literal not in ({}, []):
        constants[name] = literal


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
