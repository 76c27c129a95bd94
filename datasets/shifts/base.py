"""What a shift is: a change of clients' samples after the split; how it is written, checked and applied."""

from __future__ import annotations

import dataclasses
import itertools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from pfl_benchmark.datasets.data import Dataset, Kind
from pfl_benchmark.datasets.shifts.samples import ClientSamples
from pfl_benchmark.datasets.splits import Split
from pfl_benchmark.errors import UserError, check_range, flag, is_plain, nearest

__all__ = [
    "JOINT",
    "NO_SHIFT",
    "SHIFTS",
    "About",
    "Draw",
    "Shift",
    "Shifted",
    "option",
    "read_shifts",
    "register",
]

SHIFTS: dict[str, type[Shift]] = {}
"""By how they are written, without their options: ``feature=corruption``."""

NO_SHIFT, JOINT = "none", "+"  # no shift at all; what stands between several

Draw = Callable[[str, int], np.random.Generator]
"""A fresh generator of (purpose, client); clients as they are numbered where all take part in training."""


@dataclass(frozen=True)
class About:
    """What a shift may depend on, known before the data are: see `DatasetInfo`."""

    dataset: str
    kind: Kind
    unit: str
    shape: tuple[int, ...]
    classes: int
    clients: int
    rounds: int | None  # None: a budget decides


def option(default: float, doc: str, within: str) -> Any:
    """An option of a shift; its default's type is its own, int or float.

    Args:
        within: the interval of numbers allowed, as in `check_range`.
    """
    return dataclasses.field(default=default, metadata={"doc": doc, "within": within})


@dataclass(frozen=True)
class Shift(ABC):
    """A change of clients' samples; each is a subclass, a frozen dataclass with its options as fields.

    Of the class:

    kind, name: it is written ``KIND=NAME:OPTION:OPTION``, options in the order of the fields.
    place: shifts are applied in this order, whatever order they are given in; those of one kind exclude each
        other.
    images_only: it changes pixels.
    resizes: it changes numbers of samples.
    replaces: it gives clients other samples of the dataset, which no other shift has changed.
    """

    kind: ClassVar[str]
    name: ClassVar[str]
    place: ClassVar[int]
    images_only: ClassVar[bool] = False
    resizes: ClassVar[bool] = False
    replaces: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            if "within" in spec.metadata:
                check_option(self.key(), spec.name, getattr(self, spec.name), spec.metadata["within"])

    @classmethod
    def key(cls) -> str:
        """Its name in `SHIFTS`."""
        return f"{cls.kind}={cls.name}"

    @classmethod
    def usage(cls) -> str:
        """How it is written, with the defaults of its options."""
        return ":".join([cls.key(), *(plain_text(spec.default) for spec in dataclasses.fields(cls))])

    @classmethod
    def read(cls, text: str) -> Self:
        """The shift with the options that stand behind its name, ``3`` or ``0.5:2``; empty: the defaults.

        Raises UserError for what is no number, too many of them, or out of range.
        """
        specs, parts = dataclasses.fields(cls), text.split(":") if text else []
        if len(parts) > len(specs):
            raise UserError(f"--shift {cls.key()}:{text}: too many options; expected {cls.usage()}")
        values: dict[str, float] = {}
        for spec, part in zip(specs, parts, strict=False):
            kind: type = int if isinstance(spec.default, int) else float
            try:
                if not is_plain(part):
                    raise ValueError
                values[spec.name] = kind(part)
            except ValueError as error:
                what = "a whole number" if kind is int else "a number"
                raise UserError(
                    f"--shift {cls.key()}: {spec.name.upper()} is '{part:.40}'; expected {what}, such as "
                    f"{cls.usage()}"
                ) from error
        return cls(**values)

    @property
    def text(self) -> str:
        """As it is written, without defaults at the end, but with the first option.

        Equal shifts have equal texts.
        """
        values = [(getattr(self, spec.name), spec.default) for spec in dataclasses.fields(self)]
        while len(values) > 1 and values[-1][0] == values[-1][1]:
            values.pop()
        return ":".join([self.key(), *(plain_text(value) for value, _ in values)])

    def check_others(self, others: Sequence[Shift]) -> None:  # noqa: B027 - most refuse none
        """Refuse shifts of other kinds that stand beside it. Raises UserError."""

    def check(self, about: About) -> None:
        """Refuse data that it cannot change. Raises UserError."""
        if self.images_only and about.kind != "images":
            raise UserError(
                f"--shift {self.text} is for images, and '{about.dataset}' holds {about.unit}; drop it, or "
                "choose another --dataset"
            )

    @abstractmethod
    def describe(self) -> str:
        """What becomes of clients, for people: ``labels of 4 groups permuted``."""

    @abstractmethod
    def apply(self, samples: ClientSamples, draw: Draw) -> Mapping[str, Any]:
        """Change the clients' samples; all randomness comes from `draw`.

        Returns what is worth having on record, as JSON values: a list has an entry for each of the clients.

        Raises UserError where it can change none of them.
        """


@dataclass(frozen=True, eq=False)
class Shifted:
    """Data and split under shifts, and by shift what is on record of each."""

    dataset: Dataset
    split: Split
    facts: Mapping[str, Mapping[str, Any]]


S = TypeVar("S", bound=Shift)


def register(cls: type[S]) -> type[S]:
    """Class decorator: make a shift known by its kind and name.

    Raises:
        ValueError: one of them is missing or no plain word, they are taken, or a field is no `option`.
    """
    for part in ("kind", "name", "place"):
        if not hasattr(cls, part):
            raise ValueError(f"{cls.__module__}.{cls.__name__} has no `{part}`: give it one")
    if not re.fullmatch(r"[a-z][a-z-]*=([a-z][a-z-]*)?", cls.key()):
        raise ValueError(f"the shift '{cls.key()}': expected small letters and hyphens")
    if cls.key() in SHIFTS:
        raise ValueError(f"two shifts are called '{cls.key()}'")
    SHIFTS[cls.key()] = cls
    return cls


def read_shifts(text: str) -> tuple[Shift, ...]:
    """The shifts that a text asks for, in the order in which they are applied; ``none``: no shift.

    Raises:
        UserError: one is unknown, or two are of one kind.
    """
    if text == NO_SHIFT:
        return ()
    parts = [part.strip() for part in text.split(JOINT)]
    if NO_SHIFT in parts:
        raise UserError(f"--shift {NO_SHIFT} stands alone; drop it, or the other shifts")
    found = sorted((read_shift(part) for part in parts), key=lambda shift: shift.place)
    for one, other in itertools.pairwise(found):
        if one.kind == other.kind:
            raise UserError(f"--shift {one.text} and --shift {other.text} are of one kind; give one of them")
    return tuple(found)


def read_shift(text: str) -> Shift:
    """One shift. Raises UserError where it is unknown, or its options are."""
    kind, equals, rest = text.partition("=")
    kinds = sorted({shift.kind for shift in SHIFTS.values()})
    known = ", ".join(shift.usage() for shift in SHIFTS.values())
    if kind not in kinds or not equals:
        guess = nearest(kind, kinds) if equals else ""
        raise UserError(f"unknown shift '{text}'{guess}; expected KIND=NAME:OPTION, one of: {known}")
    name, _, options = rest.partition(":")
    if f"{kind}=" in SHIFTS:  # it has no name, only options
        return SHIFTS[f"{kind}="].read(rest)
    if f"{kind}={name}" not in SHIFTS:
        names = [shift.name for shift in SHIFTS.values() if shift.kind == kind]
        usual = ", ".join(shift.usage() for shift in SHIFTS.values() if shift.kind == kind)
        raise UserError(f"unknown shift '{text}'{nearest(name, names)}; known of this kind: {usual}")
    return SHIFTS[f"{kind}={name}"].read(options)


def check_option(shift: str, name: str, value: float, within: str) -> None:
    """`check_range` of an option of a shift, whose name people know in capitals."""
    try:
        check_range(name, value, within)
    except UserError as error:
        text = str(error).removeprefix(flag(name))
        raise UserError(f"--shift {shift}: {name.upper()}{text}") from error


def plain_text(value: Any) -> str:
    """A number as people write it, all of its digits: 0.2, 3."""
    short = f"{value:g}"
    return short if float(short) == value else str(value)


def in_text(shifts: Iterable[Shift]) -> str:
    """Shifts as they are written; `read_shifts` reads them."""
    return JOINT.join(shift.text for shift in shifts) or NO_SHIFT


def apply_shifts(
    dataset: Dataset, split: Split, shifts: Sequence[Shift], draw: Draw, numbers: Sequence[int]
) -> Shifted:
    """Data and split of clients whose samples have been changed.

    Args:
        numbers: by which each client of the split draws, whatever its place there.
    """
    if not shifts:
        return Shifted(dataset, split, {})
    samples = ClientSamples(dataset, split, numbers)
    facts = {shift.text: found for shift in shifts if (found := shift.apply(samples, draw))}
    # Indices no longer tell what samples these are.
    digest = f"{split.checksum} {in_text(shifts)}"
    return Shifted(*samples.result(digest), facts)
