"""What a partitioner is: a request for a split, with its checks, its words, and the way to deal it."""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from pfl_benchmark.datasets.data import Dataset
from pfl_benchmark.datasets.pools import ClassPools, apportion
from pfl_benchmark.datasets.splits import Split
from pfl_benchmark.errors import Unlucky, UserError, check_range, flag, unknown

__all__ = ["PARTITIONERS", "ByLabels", "Dealt", "Partitioner", "find_partitioner", "option", "register"]

PARTITIONERS: dict[str, type[Partitioner]] = {}
Dealt = tuple[list[np.ndarray], np.ndarray]  # see `ByLabels.deal`

_COUNT = {"within": "[1, 1e7]"}


def option(default: float, doc: str, within: str, such_as: Any = None, always: bool = False) -> Any:
    """A field of a partitioner that is a field of `RunConfig` and a flag, too.

    Args:
        default: its type is the option's, int or float. Outside of `within`: the partitioner needs a value.
        within: the interval of numbers allowed, as in `check_range`.
        such_as: an example for messages; needed where the default is outside of `within`.
        always: it counts in the identity of every run, also at its default, as it does in the first records;
            nothing for new options.
    """
    rules = {"doc": doc, "within": within, "such_as": such_as}
    return field(default=default, metadata=rules if always else {**rules, "absent": default})


@dataclass(frozen=True)
class Partitioner(ABC):
    """A request for a split; each partitioner is a subclass, a frozen dataclass with its options as fields.

    clients: number of clients K.
    samples_per_client, test_samples_per_client: training and test samples of a client, exactly or on average.

    Of the class:

    name: what ``--partition`` calls the partitioner; the first line of the docstring tells it in lists.
    by_user: whether it keeps samples with their users; only such partitioners divide datasets with users.
    ignores: fields that mean nothing to it.
    sizes: how far the clients' sizes are those of the request, as the end of a sentence; empty: not
        known before the data are.

    Raises UserError for values that fit no dataset.
    """

    clients: int = field(metadata=_COUNT)
    samples_per_client: int = field(metadata=_COUNT)
    test_samples_per_client: int = field(metadata=_COUNT)

    name: ClassVar[str]
    by_user: ClassVar[bool] = False
    ignores: ClassVar[tuple[str, ...]] = ()
    sizes: ClassVar[str] = "this split's are all equal"

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            check_range(
                spec.name,
                getattr(self, spec.name),
                spec.metadata["within"],
                f" under --partition {self.name}" if spec.name in self.options() else "",
                spec.metadata.get("such_as"),
            )

    @classmethod
    def options(cls) -> dict[str, dataclasses.Field[Any]]:
        """The options by name, but for those that it ignores."""
        own = (spec for spec in dataclasses.fields(cls) if spec.name not in cls.ignores)
        return {spec.name: spec for spec in own if "doc" in spec.metadata}

    @property
    def slug(self) -> str:
        """Partitioner and options as a part of folder names; the same for as long as there are records."""
        return self.name + "-".join(f"{getattr(self, name):g}" for name in self.options())

    @abstractmethod
    def describe(self) -> str:
        """What each client has, for people: ``2 classes and 60 training images each``."""

    def tell(self, facts: Mapping[str, int]) -> str:
        """`Split.facts` for people; empty: nothing."""
        return ""

    @classmethod
    def check(cls, dataset: str, users: bool) -> None:
        """Refuse a dataset that it does not divide.

        users: whether the dataset's samples have users.

        Raises UserError.
        """
        if users and not cls.by_user:
            others = " or ".join(name for name, partitioner in PARTITIONERS.items() if partitioner.by_user)
            raise UserError(
                f"--partition {cls.name} is not for '{dataset}', whose samples stay with their users; "
                f"use --partition {others}"
            )
        if cls.by_user and not users:
            raise UserError(
                f"--partition {cls.name} needs users, and '{dataset}' has none; choose another partition"
            )

    def arranged(self, dataset: Dataset) -> Dataset:
        """The dataset as `split` divides it and a run takes it, by default as it is."""
        return dataset

    @abstractmethod
    def split(self, dataset: Dataset, rng: np.random.Generator) -> Split:
        """Divide a dataset among the clients; all randomness comes from `rng`.

        Raises UserError for a request that the dataset cannot meet, with the largest value that works.
        """


@dataclass(frozen=True)
class ByLabels(Partitioner):
    """A partitioner that only looks at labels. A subclass says in `deal` who gets which training samples.

    Training parts are disjoint. Test parts have the classes of the training parts (as far as there are test
    samples of them), and are disjoint where the
    test samples suffice; elsewhere samples are shared between clients as evenly as possible, never repeated
    within one.

    mixed (of the class): classes do not count either; all samples are taken for one class.
    """

    mixed: ClassVar[bool] = False

    @abstractmethod
    def deal(self, labels: np.ndarray, pools: ClassPools, rng: np.random.Generator) -> Dealt:
        """Return the clients' training samples (K index arrays), and in what proportions they are tested.

        labels: int64 [N] of the training samples, which `pools` has by class.

        The proportions are integers [K, C], of which no row is all 0.
        """

    def room(self, train: np.ndarray, test: np.ndarray) -> tuple[tuple[int, str], tuple[int, str]]:
        """The most training and the most test samples that a client can have, each with the reason.

        train, test: samples per class, int64 [C]. The limits hold for every deal, so that no seed fails where
        another works.
        """
        total, smallest = int(train.sum()), int(min(test[test > 0], default=0))
        # A client may have a single class.
        where = f"there are {smallest:,}" if self.mixed else f"the smallest class has {smallest:,}"
        return (
            (total // self.clients, f"there are {total:,} training images for {self.clients:,} clients"),
            (smallest, f"{where} test images"),
        )

    def split(self, dataset: Dataset, rng: np.random.Generator) -> Split:
        self.check(dataset.name, dataset.users is not None)
        try:
            return self.divide(dataset.train.y, dataset.test.y, dataset.classes, rng)
        except UserError as error:
            if dataset.kind != "rows":
                raise
            raise type(error)(in_units(str(error), dataset.unit)) from error

    def divide(
        self,
        train_labels: npt.ArrayLike,
        test_labels: npt.ArrayLike,
        classes: int,
        rng: np.random.Generator,
    ) -> Split:
        """`split` for labels alone: int64 [N], values 0..classes-1."""
        train_y = np.asarray(train_labels, dtype=np.int64)
        test_y = np.asarray(test_labels, dtype=np.int64)
        if self.mixed:
            train_y, test_y, classes = np.zeros_like(train_y), np.zeros_like(test_y), 1
        train_sizes, test_sizes = (np.bincount(labels, minlength=classes) for labels in (train_y, test_y))
        rooms = self.room(train_sizes, test_sizes)
        for name, (room, reason) in zip(
            ("samples_per_client", "test_samples_per_client"), rooms, strict=True
        ):
            if getattr(self, name) > room:
                remedy = f"give at most {room:,}" if room else "use fewer clients or another dataset"
                raise UserError(f"{flag(name)} is {getattr(self, name):,}, but {reason}: {remedy}")
        train_pools = ClassPools(train_y, classes, rng)
        test_pools = ClassPools(test_y, classes, rng)
        train, shares = self.deal(train_y, train_pools, rng)
        shares = np.where(test_sizes > 0, shares, 0)  # classes without test samples are not tested
        if (untested := np.flatnonzero(shares.sum(axis=1) == 0)).size:
            raise Unlucky(
                f"client {untested[0]} trains on classes that have no test samples, and on no others; give "
                "the data test samples of every class, or the clients more classes"
            )
        test = test_pools.take(apportion(shares, self.test_samples_per_client, rng))
        return Split(tuple(train), tuple(test))


def in_units(text: str, unit: str) -> str:
    """A partitioner's words, which speak of images, for samples that are called otherwise."""
    return re.sub(r"\bimages\b", unit, re.sub(r"\bimage\b", unit.removesuffix("s"), text))


L = TypeVar("L", bound=Partitioner)


def register(cls: type[L]) -> type[L]:
    """Class decorator: make a partitioner known by its `name`.

    Raises:
        ValueError: the name is missing, the name or an option is taken, or a field is no `option`.
    """
    if not getattr(cls, "name", ""):
        raise ValueError(f"{cls.__module__}.{cls.__name__} has no `name`: give it one")
    if cls.name in PARTITIONERS:
        raise ValueError(f"two partitioners are called '{cls.name}'")
    for spec in dataclasses.fields(cls):
        if "within" not in spec.metadata:
            raise ValueError(f"{spec.name} of '{cls.name}' is no `option(default, doc, within)`")
    for name, partitioner in PARTITIONERS.items():
        for spec in cls.options().values():
            if partitioner.options().get(spec.name, spec) is not spec:
                raise ValueError(f"the option {spec.name} of '{cls.name}' is one of '{name}' already")
    PARTITIONERS[cls.name] = cls
    return cls


_CALLED = {"noniid": "dirichlet", "dir": "dirichlet", "lda": "dirichlet", "pathological": "distinct"}


def find_partitioner(name: str) -> type[Partitioner]:
    """The partitioner of that name.

    Raises:
        UserError: unknown; suggests the nearest.
    """
    if name not in PARTITIONERS:
        raise unknown("partition", name, PARTITIONERS, _CALLED.get(name.lower().replace("-", ""), ""))
    return PARTITIONERS[name]
