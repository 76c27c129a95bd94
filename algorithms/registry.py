"""Names of methods."""

from __future__ import annotations

from typing import TypeVar

from benchmark.engine.algorithm import Algorithm
from benchmark.errors import unknown

__all__ = ["ALGORITHMS", "find", "register"]

ALGORITHMS: dict[str, type[Algorithm]] = {}

A = TypeVar("A", bound=Algorithm)


def register(cls: type[A]) -> type[A]:
    """Class decorator: make a method known by its `name`."""
    if cls.name in ALGORITHMS:
        raise ValueError(f"two methods are called '{cls.name}'")
    ALGORITHMS[cls.name] = cls
    return cls


def find(name: str) -> type[Algorithm]:
    """The method of that name.

    Raises:
        UserError: unknown; suggests the nearest.
    """
    if name not in ALGORITHMS:
        raise unknown("method", name, sorted(ALGORITHMS))
    return ALGORITHMS[name]
