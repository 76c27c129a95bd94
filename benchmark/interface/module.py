"""A network that is written in a script or in a cell of a notebook, as a `torch.nn.Module`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

from torch import nn

from pfl_benchmark.errors import UserError
from pfl_benchmark.interface.sources import CELL, keep_source
from pfl_benchmark.models import ARCHITECTURES, Architecture, Network, network_from_module
from pfl_benchmark.models.module import split_points
from pfl_benchmark.models.registry import Shape

ModuleFactory = Callable[..., nn.Module]
"""Makes a module with fresh initial values. It takes nothing, or the shape of a sample without the batch,
such as (3, 32, 32), and the number of classes."""


def network_of_module(make: ModuleFactory, kind: str) -> str:
    """Register a module as a network, and return the name of that: the class's or function's.

    Its children are fed one after the other, as in `nn.Sequential`; those with parameters, normalisation
    aside, are the network's layers, of which methods may keep some personal. The last is an `nn.Linear`.

    Args:
        kind: of the samples that it reads, one of `models.registry.KINDS`.

    Raises:
        UserError: this is no class or function with a name, its name is that of another network, or the
            samples are texts.
    """
    if kind in ("words", "characters"):
        raise UserError(
            "network is a module, which cannot read texts here; register a network in a plugin "
            "(docs/site/extend/network.md)"
        )
    name = re.sub(r"[^a-z0-9]+", "-", getattr(make, "__name__", "").lower()).strip("-")
    if isinstance(make, nn.Module) or not callable(make) or not name or name == "lambda":
        what = "a module, not what makes it" if isinstance(make, nn.Module) else f"{make!r:.60}"
        raise UserError(f"network is {what}; expected a name, or a class or function that makes a module")
    known = ARCHITECTURES.get(name)
    again = known is None or known.module.startswith((CELL, "__main__")) or known.title == _title(make)
    if not again:
        raise UserError(f"there is a network '{name}' already; give {make.__name__} another name")
    keep_source(make)
    sized = len(_parameters(make)) >= 2

    def build(shape: Shape, classes: int) -> Network:
        def fresh() -> nn.Module:
            return make(shape, classes) if sized else make()

        module = fresh()
        if not isinstance(module, nn.Module):
            raise UserError(f"{make.__name__} returns {module!r:.60}; expected a torch.nn.Module")
        return network_from_module(fresh, split_points(module), shape)

    ARCHITECTURES[name] = Architecture(name, _title(make), "given in Python", build, make.__module__, kind)
    return name


def _title(make: ModuleFactory) -> str:
    """The class or function, and where it is from."""
    return f"{make.__name__} of {make.__module__}"


def _parameters(make: ModuleFactory) -> list[inspect.Parameter]:
    """Arguments that must be given."""
    found = inspect.signature(make).parameters.values()
    return [each for each in found if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
