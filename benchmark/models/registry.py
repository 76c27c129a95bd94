"""The architectures: networks by name that can be built for any data that they fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from pfl_benchmark.errors import UserError, unknown
from pfl_benchmark.models.network import Network

# Of a sample: channels, height and width of an image; channels and steps of a series; width of word vectors;
# length of a text of characters and size of the alphabet; features of a row.
Shape = tuple[int, ...]
Factory = Callable[[Shape, int], Network]  # makes the network for a shape and a number of classes

ELSE = "choose another (python -m benchmark list networks) or write one (docs/site/extend/network.md)"


KINDS = {
    "images": "images",
    "words": "texts",
    "characters": "texts of characters",
    "series": "series",
    "rows": "rows of a table",
}


@dataclass(frozen=True)
class Architecture:
    """A network but for the sizes of its input and output."""

    name: str
    title: str
    source: str  # publication, official code, deviations from them
    make: Factory
    module: str  # the name of the one whose code `make` is
    kind: str = "images"  # of the samples that it reads, one of `KINDS`
    least: int = 1  # height and width of images, steps of series

    @property
    def fits(self) -> str:
        """The data that it is for, in words."""
        units = {"images": f" of {self.least} x {self.least} pixels", "series": f" of {self.least} steps"}
        bounded = self.least > 1 and self.kind in units
        return KINDS[self.kind] + (f"{units[self.kind]} or more" if bounded else "")

    def build(self, shape: Shape, classes: int, kind: str = "images") -> Network:
        """The network for some data; equal calls return the same object. UserError: it does not fit them."""
        unit = {"images": "pixels", "series": "steps"}.get(kind)
        if kind != self.kind or (unit and min(shape[1:]) < self.least):
            found = KINDS[kind] + (f" of {' x '.join(map(str, shape[1:]))} {unit}" if unit else "")
            raise UserError(f"--network {self.name} is for {self.fits}, and these are {found}; {ELSE}")
        return _built(self, shape, classes)


@cache
def _built(architecture: Architecture, shape: Shape, classes: int) -> Network:
    """The network of an architecture, tried out on shapes alone; UserError where that does not work."""
    where = f"--network {architecture.name}, samples {' x '.join(map(str, shape))}"
    try:
        network = architecture.make(shape, classes)
        if not isinstance(network, Network):
            raise TypeError(f"its factory returns {type(network).__name__}, no Network")
        params = {name: torch.empty(size, device="meta") for name, size in network.shapes().items()}
        logits = network.apply(params, empty_inputs(shape, architecture.kind))
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except Exception as error:  # whatever a layer makes of an input that does not fit
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{where}: it cannot be built ({reason}); {ELSE}") from error
    if tuple(logits.shape) != (2, classes):
        raise UserError(
            f"{where}: two samples give outputs of shape {tuple(logits.shape)}; expected (2, {classes}), "
            f"one logit a class; {ELSE}"
        )
    return network


def empty_inputs(shape: Shape, kind: str) -> Tensor:
    """Two inputs of a network on the `meta` device, for samples of a shape and kind."""
    # A text of one word, and its mask; the characters of a text.
    own = {"words": (1, shape[0] + 1), "characters": shape[:1]}
    return torch.empty(2, *own.get(kind, shape), device="meta")


ARCHITECTURES: dict[str, Architecture] = {}
# Packages of which any network can be chosen, as PACKAGE:NAME; the values make the architecture.
PACKAGES: dict[str, Callable[[str], Architecture]] = {}


def register_network(
    name: str, title: str, source: str, *, kind: str = "images", least: int = 1
) -> Callable[[Factory], Factory]:
    """Decorator of a `Factory`: make what it builds known to ``--network``; see `Architecture`.

    Raises:
        ValueError: the name is taken.
    """

    def add(make: Factory) -> Factory:
        if name in ARCHITECTURES:
            raise ValueError(f"two networks are called '{name}'")
        ARCHITECTURES[name] = Architecture(name, title, source, make, make.__module__, kind, least)
        return make

    return add


def knows_architecture(name: str) -> bool:
    """Whether there is an architecture of that name, or a package that may have one."""
    return name in ARCHITECTURES or name.partition(":")[0] in PACKAGES


def find_architecture(name: str) -> Architecture:
    """The architecture of that name; for an unknown one UserError suggests the nearest."""
    package, _, inner = name.partition(":")
    if name not in ARCHITECTURES and package in PACKAGES:
        return _of_package(package, inner)
    if name not in ARCHITECTURES:
        raise unknown("network", name, sorted(ARCHITECTURES))
    return ARCHITECTURES[name]


@cache
def _of_package(package: str, name: str) -> Architecture:
    return PACKAGES[package](name)
