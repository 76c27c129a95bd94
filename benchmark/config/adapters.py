"""``--adapters``: what trains of a network in place of all of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

from pfl_benchmark.errors import UserError, nearest

KINDS = {  # its options, the one that must be given first
    "lora": ("r", "alpha", "layers"),
    "bottleneck": ("d", "layers"),
    "bias": ("layers",),
    "head": (),
}
EXAMPLES = {"lora": "lora:r=4", "bottleneck": "bottleneck:d=16", "bias": "bias", "head": "head"}
FORMS = "{}, {}, {} or {}".format(*EXAMPLES.values())


@dataclass(frozen=True)
class Adapters:
    """Adapters as they are asked for.

    Attributes:
        size: the rank r of LoRA, the units d of a bottleneck.
        alpha: LoRA's update is multiplied by alpha / r; 0: by 1.
        layers: of the network that have some; empty: all that can.
    """

    kind: str
    size: int = 0
    alpha: float = 0.0
    layers: tuple[str, ...] = ()

    @property
    def scale(self) -> float:
        """What LoRA's update is multiplied by."""
        return self.alpha / self.size if self.alpha else 1.0

    @property
    def text(self) -> str:
        """The shortest words for it."""
        options = [f"{KINDS[self.kind][0]}={self.size}"] if self.size else []
        options += [f"alpha={_digits(self.alpha)}"] if self.scale != 1 else []
        options += [f"layers={'+'.join(self.layers)}"] if self.layers else []
        return ":".join([self.kind, *([",".join(options)] if options else [])])


@cache
def read_adapters(text: str) -> Adapters:
    """The adapters that a text asks for; UserError: it asks for none."""
    kind, _, rest = (part.strip() for part in text.partition(":"))
    if kind not in KINDS:
        raise UserError(f"--adapters {text}: unknown kind '{kind}'{nearest(kind, KINDS)}; expected {FORMS}")
    known = KINDS[kind]
    given: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        name, equals, value = (word.strip() for word in part.partition("="))
        if name not in known or not (equals and value) or name in given:
            expected = ", ".join(f"{name}=…" for name in known)
            expected = f"{expected}, each once, several layers with + between them" if known else "none"
            raise UserError(f"--adapters {text}: '{part}' is no option of {kind}; expected {expected}")
        given[name] = value
    size = 0
    if known[:1] in (("r",), ("d",)):
        size = _size(text, kind, known[0], given)
    layers = tuple(dict.fromkeys(sorted(given["layers"].split("+")))) if "layers" in given else ()
    if "" in layers:
        raise UserError(
            f"--adapters {text}: layers is '{given['layers']}'; expected names with + between them, as in "
            "layers=fc1+fc2"
        )
    return Adapters(kind, size, _alpha(text, given), layers)


def _size(text: str, kind: str, name: str, given: dict[str, str]) -> int:
    value = given.get(name, "")
    if not re.fullmatch("0*[1-9][0-9]{0,5}", value):
        told = f"{name} is '{value}'" if value else f"{name} is not given"
        raise UserError(
            f"--adapters {text}: {told}; expected a whole number from 1 to 999999, as in {kind}:{name}=4"
        )
    return int(value)


def _digits(value: float) -> str:
    """A number such that it is read as the same, without an exponent: ``8``, ``0.0000001``."""
    return f"{Decimal(repr(value)):f}".removesuffix(".0")


def _alpha(text: str, given: dict[str, str]) -> float:
    value = given.get("alpha", "0")
    if "alpha" in given and not (re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) and 0 < float(value) <= 1e6):
        raise UserError(
            f"--adapters {text}: alpha is '{value}'; expected above 0, at most 1000000, as in alpha=8"
        )
    return float(value)
