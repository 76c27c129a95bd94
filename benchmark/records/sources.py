"""The source code that computes rounds, as it was when the program began."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pfl_benchmark.records.files import read_json

_PACKAGE = "pfl_benchmark"
_ROOT = Path(__file__).parents[1]  # which holds algorithms and datasets, too: as links in a checkout
_METHODS = "algorithms"
_COMPUTING = (
    _METHODS,
    "benchmark/engine",
    "benchmark/models",
    "benchmark/experiment/prepare.py",  # draws splits, schedules and initial weights
    "benchmark/records/metrics.py",
    "datasets",
)


def read(root: Path) -> dict[str, bytes]:
    """The modules below the package `root` that compute rounds (methods, engine, networks, data).

    By their paths in a checkout (`path_of`).
    """
    sources = {}
    for name in _COMPUTING:
        start = root / name.removeprefix("benchmark/")
        for path in [start] if start.is_file() else sorted(start.rglob("*.py")):
            if path.is_file():  # editors leave links that lead nowhere
                below = path.relative_to(start).as_posix()
                sources[name if below == "." else f"{name}/{below}"] = path.read_bytes()
    return sources


def path_of(module: str) -> str:
    """Where a checkout has a module or package, without its ending; names of other projects as paths, too."""
    first, *rest = module.split(".")
    if first != _PACKAGE:
        return module.replace(".", "/")
    own = rest[:1] in (["algorithms"], ["datasets"])
    return "/".join(rest if own else ["benchmark", *rest])


SOURCES = read(_ROOT)  # at once: what is edited while the program runs is not what runs


def digest(sources: Mapping[str, bytes]) -> str:
    """Changes with what modules compute, not with their layout, prose, annotations and imports."""
    found = hashlib.sha256()
    for name, source in sources.items():
        if meaning := _meaning(source):
            found.update(f"{name}\0{meaning}\0".encode())
    return found.hexdigest()


def same_code(then: Any, here: str) -> bool:
    """Whether the digest of a record is that of the code here, or of code proven to give the same floats.

    A proof is about two digests: it ends with the next change of what computes.
    """
    return then == here or _proven().get(then) == here


@cache
def _proven() -> Mapping[str, str]:
    equal: Mapping[str, str] = read_json(Path(__file__).with_name("proven_equal.json"))["equal"]
    return equal


def imported(start: Iterable[str], sources: Mapping[str, bytes], home: str = _METHODS) -> set[str]:
    """Modules of the methods `start` (such as ``fedper``) and of those that they import; packages whole.

    Instead of methods, `home` may hold what else has one file each, such as ``datasets/partitioners``.
    """
    found: set[str] = set()
    methods = list(start)
    while methods:
        method = methods.pop()
        for name in sources:
            if _member(name, home) == method and name not in found:
                found.add(name)
                methods += _imports(sources[name], home)
    return found


def _member(name: str, home: str) -> str:
    """``ppfe`` for algorithms/ppfe/stages.py; empty for modules outside of `home`."""
    below = name.removesuffix(".py").removeprefix(f"{home}/")
    return below.partition("/")[0] if name.startswith(f"{home}/") else ""


@cache
def _imports(source: bytes, home: str) -> set[str]:
    """Names that may be methods' (others match none), such as ``fedavg`` of algorithms/fedavg.py."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return set()
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            inner = [node.module] if node.level and node.module else [alias.name for alias in node.names]
            if node.level:  # relative ones are taken for neighbours
                found |= {_member(f"{home}/{name}", home) for name in inner}
            else:
                names += [f"{node.module}.{name}" for name in inner]
    return (found | {_member(path_of(name), home) for name in names}) - {""}


@cache
def _meaning(source: bytes) -> str:
    """What of a module decides floats (`_told`), as text; empty where nothing does.

    The same under every version of Python; a file that is no Python counts byte by byte.
    """
    try:
        told = _told(_without_words(ast.parse(source)))
    except (SyntaxError, ValueError):
        return source.hex()
    return repr(told) if told != ["Module"] else ""


# Of nodes: what is for readers and type checkers, and what not all versions of Python have.
_FOR_READERS = {"annotation", "returns", "type_comment", "type_params", "kind", "simple"}

_OPTION = ("pfl_benchmark.method", "pfl_benchmark.engine.hyper")  # where hyper-parameters have theirs from
TOLD = ("group", "publication", "pseudocode")  # what a method says of itself


def _told(part: Any, inside: type | None = None) -> Any:
    """A part of a syntax tree as nested lists, without what decides no float.

    That is: docstrings, annotations, imports, ``__all__``, ``if TYPE_CHECKING``, what errors say, what a
    method says of itself (`TOLD`), and of its hyper-parameters the line of documentation and what `tune`
    tries. Any other field of a class keeps its name and default.
    """
    if isinstance(part, list):
        return [_told(item) for item in part if not _decides_nothing(item, inside)]
    if not isinstance(part, ast.AST):
        return repr(part)
    if isinstance(part, ast.Raise) and isinstance(part.exc, ast.Call):
        return ["Raise", _told(part.exc.func)]
    if isinstance(part, ast.AnnAssign) and part.value is not None:
        part = ast.Assign(targets=[part.target], value=part.value)
    # `ast.dump` would not do: from version to version it writes more, or fewer, of the fields that are empty.
    fields = sorted(
        (name, _told(value, type(part))) for name, value in ast.iter_fields(part) if name not in _FOR_READERS
    )
    return [type(part).__name__, *([name, told] for name, told in fields if told != [])]


def _without_words(module: ast.Module) -> ast.Module:
    """A module; of ``option(default, "documentation", …, search=…)`` in its classes what decides floats."""
    if not any(
        isinstance(part, ast.ImportFrom)
        and part.module in _OPTION
        and "option" in {n.name for n in part.names}
        for part in module.body
    ):
        return module  # whose `option` is another
    for field in (part for kind in module.body if isinstance(kind, ast.ClassDef) for part in kind.body):
        match field:
            case ast.AnnAssign(
                value=ast.Call(func=ast.Name(id="option"), args=[default, ast.Constant(value=str())]) as call
            ):
                call.args = [default]
                call.keywords = [keyword for keyword in call.keywords if keyword.arg != "search"]
    return module


def _decides_nothing(part: Any, inside: type | None) -> bool:
    match part:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return True
        case ast.AnnAssign(value=None):
            return inside is not ast.ClassDef
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name == "__all__" or (inside is ast.ClassDef and name in TOLD)
        case ast.If(test=ast.Name(id=name) | ast.Attribute(attr=name), orelse=[]):
            return name == "TYPE_CHECKING"
    return False
