"""Names of methods."""

from __future__ import annotations

import dataclasses
import re
from typing import TypeVar

from pfl_benchmark.config.adapters import EXAMPLES
from pfl_benchmark.config.run_config import REFUSABLE
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
    if strange := [name for name in cls.refuses if name not in REFUSABLE]:
        raise ValueError(
            f"'{cls.name}' refuses '{strange[0]}'; expected options of local training: {', '.join(REFUSABLE)}"
        )
    if not isinstance(cls.aliases, tuple) or not all(isinstance(name, str) for name in cls.aliases):
        raise ValueError(f"aliases of '{cls.name}' are {cls.aliases!r:.60}; expected a tuple of names")
    ALGORITHMS[cls.name] = cls
    return cls


def _plain(name: str) -> str:
    """A name without what people type in different ways: capitals, hyphens, blanks and the like."""
    return re.sub(r"[\W_]", "", name).lower()


def called(name: str) -> str:
    """The registered name of the method that is called so, in whatever spelling; the same where none is.

    Names come before titles and aliases. A name that means several methods is nobody's.
    """
    if name in ALGORITHMS or not (word := _plain(name)):
        return name
    for names in (lambda method: (method.name,), lambda method: (method.title, *method.aliases)):
        found = [method.name for method in ALGORITHMS.values() if word in map(_plain, names(method))]
        if found:
            return found[0] if len(found) == 1 else name
    return name


def find(name: str) -> type[Algorithm]:
    """The method of that name, as `called`.

    Raises:
        UserError: unknown; suggests the nearest.
    """
    name = called(name)
    if name not in ALGORITHMS:
        if name.endswith(".py"):
            raise UserError(
                f"unknown method '{name}': give the file as --plugin {name}, and --algo the name in it"
            )
        raise unknown("method", name, sorted(ALGORITHMS))
    return ALGORITHMS[name]


def needed(name: str) -> dict[str, str]:
    """Fields of a configuration without which a method is not defined, and values for examples."""
    kind = find(name).needs_adapters
    return {"adapters": EXAMPLES[kind]} if kind else {}
