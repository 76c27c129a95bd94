"""Names of launchers."""

from __future__ import annotations

from collections.abc import Callable

from benchmark.errors import unknown
from benchmark.launch.base import Launcher, Options

__all__ = ["LAUNCHERS", "find", "register"]

Maker = Callable[[Options], Launcher]

LAUNCHERS: dict[str, Maker] = {}


def register(name: str) -> Callable[[Maker], Maker]:
    """Decorator of a function that makes a launcher: it becomes the value `name` of ``--launcher``."""

    def add(maker: Maker) -> Maker:
        if name in LAUNCHERS:
            raise ValueError(f"two launchers are called '{name}'")
        LAUNCHERS[name] = maker
        return maker

    return add


def find(name: str) -> Maker:
    """What makes the launcher of that name.

    Raises:
        UserError: unknown; suggests the nearest.
    """
    if name not in LAUNCHERS:
        raise unknown("launcher", name, sorted(LAUNCHERS))
    return LAUNCHERS[name]
