"""Names of methods."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.errors import UserError, check_name, unknown

ALGORITHMS: dict[str, type[Algorithm]] = {}

A = TypeVar("A", bound=Algorithm)


def register(cls: type[A]) -> type[A]:
    """Class decorator: make a method known by its `name`.

    Raises:
        ValueError: the name is taken or could not be typed, or the class lacks what lists and tables say of a
            method.
    """
    if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
        raise ValueError(f"{cls!r:.60} is no subclass of Algorithm")
    for attribute in ("name", "title", "reference"):
        if not getattr(cls, attribute, ""):
            raise ValueError(f"{cls.__module__}.{cls.__name__} has no `{attribute}`: give it one")
    for kind, name in (("method", cls.name), *(("ablation", name) for name in cls.ablations)):
        check_name(kind, name)
    if cls.name in ALGORITHMS:
        raise ValueError(f"two methods are called '{cls.name}'")
    if twin := next((other for other in ALGORITHMS.values() if other.title == cls.title), None):
        raise ValueError(f"the title {cls.title!r} of '{cls.name}' is that of '{twin.name}'")
    if not isinstance(cls.Hyper, type) or "__dataclass_fields__" not in vars(cls.Hyper):
        raise ValueError(f"{getattr(cls.Hyper, '__name__', cls.Hyper)} of '{cls.name}' is no dataclass")
    for spec in dataclasses.fields(cls.Hyper):
        if "doc" not in spec.metadata or spec.default is dataclasses.MISSING:
            raise ValueError(f"{spec.name} of {cls.Hyper.__name__} is no `option(default, doc)`")
    ALGORITHMS[cls.name] = cls
    return cls


def find(name: str) -> type[Algorithm]:
    """The method of that name.

    Raises:
        UserError: unknown; suggests the nearest.
    """
    if name not in ALGORITHMS:
        if name.endswith(".py"):
            raise UserError(
                f"unknown method '{name}': give the file as --plugin {name}, and --algo the name in it"
            )
        raise unknown("method", name, sorted(ALGORITHMS))
    return ALGORITHMS[name]
