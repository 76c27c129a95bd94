"""Names and flags of launchers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pfl_benchmark.config.flags import add_flag
from pfl_benchmark.errors import UserError, flag, unknown
from pfl_benchmark.launch.base import Launcher, Options

Maker = Callable[[Options], Launcher]


@dataclass(frozen=True)
class Entry:
    """A launcher that can be asked for."""

    make: Maker
    where: str  # runs run, in a few words for the help text
    flags: Mapping[str, Mapping[str, Any]]  # its own, each with the keywords of argparse's `add_argument`


LAUNCHERS: dict[str, Entry] = {}


def register(name: str, where: str, **flags: Mapping[str, Any]) -> Callable[[Maker], Maker]:
    """Decorator of what makes a launcher: it becomes the value `name` of ``--launcher`` (see `Entry`)."""

    def add(maker: Maker) -> Maker:
        if name in LAUNCHERS:
            raise ValueError(f"two launchers are called '{name}'")
        LAUNCHERS[name] = Entry(maker, where, flags)
        return maker

    return add


def find(name: str) -> Maker:
    """What makes the launcher of that name; for an unknown one UserError suggests the nearest."""
    if name not in LAUNCHERS:
        raise unknown("launcher", name, sorted(LAUNCHERS))
    return LAUNCHERS[name].make


def add_flags(group: argparse._ArgumentGroup) -> None:
    """Add ``--launcher`` and the flags of all launchers."""
    places = ", ".join(f"{name} ({entry.where})" for name, entry in LAUNCHERS.items())
    add_flag(group, "--launcher NAME", f"where runs run: {places} (default: local)", default="local")
    for entry in LAUNCHERS.values():
        for name, keywords in entry.flags.items():
            group.add_argument(flag(name), **keywords)


def flags_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The values of the flags of the launcher that was asked for; UserError for one of another launcher."""
    find(arguments.launcher)
    for launcher, entry in LAUNCHERS.items():
        for name, keywords in entry.flags.items():
            if launcher != arguments.launcher and getattr(arguments, name) != keywords.get("default"):
                raise UserError(
                    f"{flag(name)} is for --launcher {launcher}; add --launcher {launcher}, or drop "
                    f"{flag(name)}"
                )
    return {name: getattr(arguments, name) for name in LAUNCHERS[arguments.launcher].flags}
