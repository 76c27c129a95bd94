"""Groups of clients to whom a label means another thing, in training and in testing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pfl_benchmark.datasets.shifts.base import About, Draw, Shift, option
from pfl_benchmark.datasets.shifts.samples import HALVES, ClientSamples
from pfl_benchmark.errors import UserError


@dataclass(frozen=True)
class Groups(Shift):
    """Clients are divided at random into groups of equal size, give or take one; each has labels of its own.

    least (of the class): classes that it needs.
    """

    kind: ClassVar[str] = "concept"
    place: ClassVar[int] = 20
    least: ClassVar[int] = 2
    groups: int = option(2, "number of groups", "[2, 1e6]")

    @abstractmethod
    def labels(self, classes: int, rng: np.random.Generator) -> np.ndarray:
        """What each class is called in a group, int64 [classes], drawn anew until no two groups agree."""

    def first(self, classes: int) -> list[np.ndarray]:
        """What the classes are called in the first groups, which draw nothing."""
        return []

    @abstractmethod
    def most(self, classes: int) -> float:
        """How many groups can differ, with so many classes."""

    def check(self, about: About) -> None:
        super().check(about)
        if self.groups > about.clients:
            raise UserError(
                f"--shift {self.text} has {self.groups:,} groups for {about.clients:,} clients; give at most "
                "one group a client"
            )
        if about.classes < self.least:
            classes = f"{about.classes} class{'es' * (about.classes != 1)}"
            raise UserError(
                f"--shift {self.key()} needs at least {self.least} classes, and '{about.dataset}' has "
                f"{classes}; drop it"
            )
        if self.groups > (most := self.most(about.classes)):
            raise UserError(
                f"--shift {self.text}: of {about.classes} classes at most {most:g} groups differ; give fewer"
            )

    def apply(self, samples: ClientSamples, draw: Draw) -> Mapping[str, Any]:
        classes, rng = samples.dataset.classes, draw(f"concept-{self.name}", 0)
        order = rng.permutation(samples.everyone)
        places = np.argsort(np.argsort(order[samples.numbers]))  # among those that are here
        members = [int(place) % self.groups for place in places]
        names = self.first(classes)
        while len(names) < self.groups:
            found = self.labels(classes, rng)
            if not any((found == other).all() for other in names):
                names.append(found)
        for client, group in enumerate(members):
            for half in HALVES:
                _, y = samples.get(client, half)
                samples.put(client, half, y=names[group][y])
        return {"groups": members, "labels": [own.tolist() for own in names]}
