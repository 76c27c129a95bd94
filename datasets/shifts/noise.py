"""Labels of training samples that are wrong, whatever they should be; test samples keep theirs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pfl_benchmark.datasets.shifts.base import About, Draw, Shift, option, register
from pfl_benchmark.datasets.shifts.samples import ClientSamples
from pfl_benchmark.errors import UserError


@dataclass(frozen=True)
class Noise(Shift):
    """A share of each client's training labels is wrong, rounded to whole samples and drawn at random.

    With a `spread` each client draws its own share, uniformly between rate - spread and rate + spread, at
    least 0 and at most 1.
    """

    kind: ClassVar[str] = "labels"
    place: ClassVar[int] = 30
    rate: float = option(0.2, "share of a client's training samples", "(0, 1]")
    spread: float = option(0.0, "largest distance of a client's share from it", "[0, 1]")

    def check(self, about: About) -> None:
        super().check(about)
        if about.classes < 2:
            raise UserError(
                f"--shift {self.text}: '{about.dataset}' has one class, so no label can be wrong; drop it"
            )

    def share(self) -> str:
        """The share in words."""
        spread = f" ± {100 * self.spread:g}" if self.spread else ""
        return f"{100 * self.rate:g}{spread} %"

    @abstractmethod
    def wrong(self, y: np.ndarray, classes: int, rng: np.random.Generator) -> np.ndarray:
        """Wrong labels [n] in the place of the right ones [n]."""

    def apply(self, samples: ClientSamples, draw: Draw) -> Mapping[str, Any]:
        wrong = []
        for client, number in enumerate(samples.numbers):
            rng = draw(f"labels-{self.name}", number)
            _, right = samples.get(client, "train")
            y = right.copy()
            rate = self.rate
            if self.spread:
                drawn = draw(f"labels-{self.name}-rate", number).uniform(-1, 1)
                rate = min(max(rate + self.spread * drawn, 0.0), 1.0)
            chosen = rng.permutation(len(y))[: round(rate * len(y))]
            y[chosen] = self.wrong(y[chosen], samples.dataset.classes, rng)
            samples.put(client, "train", y=y)
            wrong.append(len(chosen))
        return {"wrong_labels": wrong}


@register
@dataclass(frozen=True)
class Symmetric(Noise):
    """A wrong label is any other class of the dataset, all alike."""

    name: ClassVar[str] = "noise"

    def describe(self) -> str:
        return f"{self.share()} of training labels wrong"

    def wrong(self, y: np.ndarray, classes: int, rng: np.random.Generator) -> np.ndarray:
        return (y + rng.integers(1, classes, len(y))) % classes
