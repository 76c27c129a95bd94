"""Plugins: Python files or modules anywhere that register methods, datasets, networks and settings.

They come from ``--plugin`` and from the environment's PFL_PLUGINS (separated as in PATH), which tells them to
the processes begun by this one, and from installed packages that name a module as an entry point of `GROUP`.
Nothing is imported for it where there are none.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import multiprocessing
import os
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pfl_benchmark.config.loaded import INSTALLED, LOADED
from pfl_benchmark.datasets.own import OWN_DATA, is_own
from pfl_benchmark.errors import UserError, check_name, unknown

VARIABLE = "PFL_PLUGINS"  # of the environment
GROUP = "pfl_benchmark.plugins"  # of entry points
_REFUSED: set[str] = set()  # modules of entry points that could not be loaded


def take_plugins(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The values of ``--plugin`` in a command line, and its other words; UserError: a value is missing."""
    found: list[str] = []
    rest: list[str] = []
    left = iter(words)
    for word in left:
        if word != "--plugin" and not word.startswith("--plugin="):
            rest.append(word)
            continue
        value = word.removeprefix("--plugin=") if word != "--plugin" else next(left, "")
        if not value or value.startswith("-"):
            raise UserError("--plugin: expected a Python file or the name of a module after it")
        found.append(value)
    return found, rest


def load_plugins(given: Sequence[str] = ()) -> None:
    """Load the plugins of installed packages, of the environment, then those given; each once a process.

    An installed one that cannot be loaded is left out, which is said once.

    Another one is a UserError if it cannot be imported, registers nothing or what could not be used, or takes
    a name that exists; what it had registered until then is undone.
    """
    own, given = [text for text in given if is_own(text)], [text for text in given if not is_own(text)]
    if bad := next((text for text in given if os.pathsep in text or "\0" in text), None):
        raise UserError(f"plugin {bad!r}: expected a path without {os.pathsep!r}, which separates plugins")
    _load_installed()
    named = [text for text in os.environ.get(VARIABLE, "").split(os.pathsep) if text]
    for text in (*named, *given):
        is_file = text.endswith(".py") or os.sep in text
        if ".py," in text and not os.path.exists(text):
            raise UserError(f"plugin {text}: a list with commas; give each file by a --plugin of its own")
        if not is_file and os.path.isfile(text):
            raise UserError(f"plugin {text}: its name ends otherwise; expected a Python file, NAME.py")
        here = os.path.expanduser(text)  # os.path answers False where pathlib raises: too long a name
        if os.path.isdir(here) and not os.path.isfile(os.path.join(here, "__init__.py")):
            raise UserError(
                f"plugin {text}: it is a folder; give each Python file in it by a --plugin of its own"
            )
        plugin = os.path.realpath(os.path.expanduser(text)) if is_file else text
        if plugin not in LOADED:
            _load(plugin, f"plugin_{Path(plugin).stem}" if is_file else plugin)
    if LOADED:
        os.environ[VARIABLE] = os.pathsep.join(LOADED)
    if own or os.environ.get(OWN_DATA):
        from pfl_benchmark.config.own_data import load_own

        for text in filter(None, os.environ.get(OWN_DATA, "").split("\n")):
            load_own(text, anew=False)
        for text in own:
            load_own(text)


@cache
def _entry_points() -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=GROUP))


def _load_installed() -> None:
    for point in _entry_points():
        module = point.module
        if module in LOADED or module in _REFUSED:
            continue
        try:
            _load(module, module)
            INSTALLED.add(module)
        except UserError as error:
            _REFUSED.add(module)
            if multiprocessing.parent_process() is None:  # workers would say it again
                from pfl_benchmark.console.terminal import say

                package = point.dist.name if point.dist else point.name
                say(
                    f"the installed package {package} is left out: {error}; update it, or remove it: "
                    f"pip uninstall {package}"
                )


def _load(plugin: str, name: str) -> None:
    """Import a plugin as a module of this name."""
    from pfl_benchmark.algorithms import ALGORITHMS
    from pfl_benchmark.config.settings import SETTINGS, Setting
    from pfl_benchmark.datasets.partitioners import PARTITIONERS
    from pfl_benchmark.datasets.registry import DATASETS, MODULES, DatasetInfo
    from pfl_benchmark.models import ARCHITECTURES, NETWORKS, Architecture, Network
    from pfl_benchmark.records.sources import SOURCES

    if name in LOADED.values():
        raise UserError(f"plugin {plugin}: another plugin has a file of that name; rename it")
    kinds: list[tuple[str, dict[str, Any], type | None]] = [
        ("method", ALGORITHMS, type),
        ("dataset", DATASETS, DatasetInfo),
        ("setting", SETTINGS, Setting),
        ("network", NETWORKS, Network),
        ("network", ARCHITECTURES, Architecture),
        ("partitioner", PARTITIONERS, None),
    ]
    registries: list[dict[str, Any]] = [*(registry for _, registry, _ in kinds), MODULES, SOURCES]
    before, modules = [dict(registry) for registry in registries], set(sys.modules)
    new = False
    try:
        SOURCES.update(_execute(plugin, name))
        MODULES.update(dict.fromkeys(DATASETS.keys() - MODULES.keys(), name))
        for (kind, registry, expected), old in zip(kinds, before, strict=False):
            for key in {**old, **registry}:
                if key not in old:
                    new = True
                    _check(kind, key, registry[key], expected)
                elif registry.get(key) is not old[key]:
                    raise ValueError(f"there is a {kind} '{key}' already; choose another name")
        if not new:
            raise ValueError(
                "it registers nothing; expected a method, dataset, network or setting (all else is a "
                "file of the checkout)"
            )
    except (Exception, SystemExit) as error:
        for registry, old in zip(registries, before, strict=True):
            registry.clear()
            registry.update(old)
        for module in _within(name) - modules:
            del sys.modules[module]
        raise UserError(f"plugin {plugin}: {_reason(error, plugin)}") from error
    LOADED[plugin] = name


def _execute(plugin: str, name: str) -> dict[str, bytes]:
    """Import a plugin; returns its sources (of a package: what it imports of itself) for those of runs."""
    if plugin == name:
        importlib.import_module(name)
        files = {part: getattr(sys.modules[part], "__file__", None) for part in sorted(_within(name))}
        return {f"plugins/{name}/{part}.py": Path(file).read_bytes() for part, file in files.items() if file}
    source = Path(plugin).read_bytes()
    module = sys.modules[name] = ModuleType(name)  # where dataclasses look their module up
    module.__file__ = plugin
    exec(compile(source, plugin, "exec", dont_inherit=True), vars(module))
    return {f"plugins/{name}/{name}.py": source}


def _within(name: str) -> set[str]:
    return {module for module in sys.modules if f"{module}.".startswith(f"{name}.")}


def _check(kind: str, name: str, found: Any, expected: Any) -> None:
    """Refuse what could not be used; a UserError or ValueError says why."""
    from pfl_benchmark.config.run_config import RunConfig
    from pfl_benchmark.datasets.api import DATASETS
    from pfl_benchmark.models import Architecture

    if expected is None:  # a partitioner: its options are fields and flags of all runs
        raise ValueError(
            f"the {kind} '{name}' comes too late in a plugin; put its file into datasets/partitioners"
        )
    if not isinstance(found, expected):
        article = "an" if expected is Architecture else "a"
        raise ValueError(
            f"the {kind} '{name}' is of type {type(found).__name__}; expected {article} {expected.__name__}"
        )
    check_name(kind, name)
    if kind == "setting":
        if missing := {"dataset", "partition"} - {*found.values}:
            raise ValueError(f"the setting '{name}' has no {min(missing)}")
        try:
            RunConfig.from_dict(found.values).validate()
            if found.values["dataset"] not in DATASETS:
                raise unknown("dataset", found.values["dataset"], DATASETS)
        except UserError as error:
            raise ValueError(f"the setting '{name}': {error}") from error


def _reason(error: BaseException, plugin: str) -> str:
    """What is wrong with a plugin, and where."""
    expected = "expected a Python file, or the name of a module that can be imported"
    if isinstance(error, OSError) and error.filename == plugin:
        return f"cannot be read ({error.strerror}); {expected}"
    if isinstance(error, ModuleNotFoundError) and f"{plugin}.".startswith(f"{error.name}."):
        return f"there is no such module; {expected}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == plugin]
    where = f" (line {lines[-1]})" if lines else ""
    if isinstance(error, (UserError, ValueError)) and not isinstance(error, UnicodeError):
        return f"{error}{where}"
    return f"cannot be imported: {type(error).__name__}: {error}{where}"
