"""Whether a finished run was computed by the code that is here now."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pfl_benchmark.algorithms import find
from pfl_benchmark.config.loaded import INSTALLED, LOADED
from pfl_benchmark.config.network import network_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets.registry import MODULES
from pfl_benchmark.models import Network, find_architecture
from pfl_benchmark.records.seal import BIT_EQUAL, WITHIN_TOLERANCE
from pfl_benchmark.records.sources import SOURCES, digest, imported, path_of, same_code

_ARCHITECTURES = "benchmark/models/architectures"
# Packages whose modules count in another way, or by the versions that an environment tells.
_NOT_LOOSE = ("pfl_benchmark", "builtins", "abc", "torch", "torchvision")


def code_of(config: RunConfig, network: Network | None = None) -> str:
    """A digest of the code that computes a run: engine, method, network, and how its data are read and dealt.

    What only other methods, networks, datasets, partitioners and shifts are made of does not count.
    `network` is `network_of` the configuration, if that is known already. What plugins have replaced in
    modules of this package counts (`replaced`).
    """
    network = network or network_of(config)
    code = _digest(_modules_of(config, network), config.dataset, repr(network))
    if not (changes := replaced()):
        return code
    return hashlib.sha256(json.dumps([code, changes], sort_keys=True).encode()).hexdigest()


def replaced() -> dict[str, str]:
    """What plugins have replaced in the code that computes rounds, by name; see `altered`.

    Without plugins nothing is searched for, and so not what a script replaces.
    """
    if not LOADED:
        return {}
    from pfl_benchmark.records.altered import altered

    return altered()


def replacement_note() -> str:
    """A line about `replaced` parts; empty where there are none."""
    if not (names := [*replaced()]):
        return ""
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"not as in this package's files: {listed}; such runs count as made by other code"


def installed_plugins(config: RunConfig, network: Network | None = None) -> list[str]:
    """The plugins of installed packages whose code counts in a run (`code_of`)."""
    modules = _modules_of(config, network or network_of(config))
    return sorted(plugin for plugin in INSTALLED if _is_within(plugin, modules))


def _modules_of(config: RunConfig, network: Network) -> tuple[str, ...]:
    """Of method, partitioner, shifts, network and dataset, with their bases."""
    layers = [part for layer in network.layers for part in layer.made_of]
    made = (find(config.algo), type(config.partitioner), *_shifts(config), type(network), *layers)
    modules = [cls.__module__ for part in made for cls in part.__mro__]
    if not config.own_network:
        modules.append(find_architecture(config.network).module)
    return tuple(dict.fromkeys([*modules, MODULES[config.dataset]]))


def _shifts(config: RunConfig) -> list[type]:
    """The classes of a run's shifts, and of those that data drift to."""
    inner = (getattr(shift, "shift", None) for shift in config.shifts)
    return [type(shift) for shift in (*config.shifts, *inner) if shift is not None]


def _is_within(package: str, modules: Iterable[str]) -> bool:
    """Whether one of `modules` is `package` or below it."""
    return any(f"{module}.".startswith(f"{package}.") for module in modules)


def outdated(
    config: RunConfig, summary: Mapping[str, Any], verified: Mapping[str, Any] | None = None
) -> bool:
    """Whether other code than this made a record, or some of its rounds.

    False for records that do not tell (older ones), and for those that this code was found to give again by
    the content of their verified.json.
    """
    stretches = (summary["environment"], *summary.get("origins", ()))
    made = {stretch["code"] for stretch in stretches if "code" in stretch}
    here, found = code_of(config), verified or {}
    if same_code(found.get("code"), here) and found.get("verdict") in (BIT_EQUAL, WITHIN_TOLERANCE):
        return False
    return not all(same_code(code, here) for code in made)


@cache
def _digest(modules: tuple[str, ...], dataset: str, network: str) -> str:
    """`code_of`, with the modules of method, partitioner and their bases, and the network in words."""
    own: set[str] = set()
    plugins = {
        name: SOURCES[name]
        for name in sorted(SOURCES)
        if name.startswith("plugins/") and _is_within(name.split("/")[1], modules)
    }
    for home in ("algorithms", "datasets/partitioners", "datasets/shifts", _ARCHITECTURES):
        paths = [path_of(name) for name in modules]
        starts = [
            path.removeprefix(f"{home}/").split("/")[0] for path in paths if path.startswith(f"{home}/")
        ]
        own |= imported(starts, SOURCES, home)
        for text in plugins.values():
            own |= imported(["plugin"], {**SOURCES, f"{home}/plugin.py": text}, home)
    own.add(f"{path_of(MODULES[dataset])}.py")
    if path_of(MODULES[dataset]).startswith("datasets/own/"):
        own |= {name for name in SOURCES if name.startswith("datasets/own/")}
    # A dataset's own network stands for the modules in which all are listed.
    some = (
        "algorithms/", "datasets/partitioners/", "datasets/shifts/", "datasets/catalogue/", "datasets/own/",
        "benchmark/models/catalogue.py", f"{_ARCHITECTURES}/", "plugins/",
    )  # fmt: skip
    used = {name: text for name, text in SOURCES.items() if name in own or not name.startswith(some)}
    used |= plugins
    for name in modules:  # what a script or notebook registers
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and name.partition(".")[0] not in _NOT_LOOSE:
            used[name] = Path(file).read_bytes()
    return digest({**used, "network": network.encode()})
