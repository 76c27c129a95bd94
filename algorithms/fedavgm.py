"""FedAvgM: FedAvg with momentum on the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from algorithms.registry import register
from benchmark.engine.algorithm import Algorithm, Task
from benchmark.engine.hyper import Between, option
from benchmark.models import Params

__all__ = ["FedAvgM"]


@dataclass(frozen=True)
class FedAvgMHyper:
    """Hyper-parameters of FedAvgM."""

    server_momentum: float = option(
        0.9,
        "momentum β of the server",
        least=0,
        below=1,
        search=(0.5, 0.7, 0.9, 0.97),
    )
    server_rate: float = option(0.1, "learning rate of the server", least=0, search=Between(0.01, 3))


@register
class FedAvgM(Algorithm):
    """The mean change of the local models is a gradient: ``v ← β v + (w − w̄); w ← w − η v``.

    Source: Hsu et al., 2019; there is no official code.

    Defaults: β = 0.9 and η = 0.1; the paper tunes all rates. With its η = 1 the digits with two classes a
    client stay at guessing; with η = 0.1 a change that lasts moves the server as far as in FedAvg.

    Deviations: the mean is unweighted unless ``--aggregation samples``. The last round, in which everyone
    takes part, moves the server by a part of the change, as every round does.

    Traps: Flower's reproduction (baselines/fedavgm) takes Nesterov's step instead, along (w − w̄) + β v.
    """

    name = "fedavgm"
    title = "FedAvgM"
    reference = "Hsu et al., arXiv 1909.06335; no official code"
    Hyper = FedAvgMHyper
    tuning = ({"server_momentum": 0.7}, {"server_momentum": 0.97}, {"server_rate": 0.3}, {"server_rate": 1.0})

    learns_little = True  # momentum goes on with what rounds before have forgotten

    def __init__(self, task: Task, hyper: FedAvgMHyper) -> None:
        super().__init__(task, hyper)
        self._velocity = {name: torch.zeros_like(tensor) for name, tensor in self.server.items()}

    def aggregate(self, mean: Params) -> None:
        for name, old in self.server.items():
            if name in self.network.buffers:  # a step may make a variance negative
                self.server[name] = mean[name]
                continue
            self._velocity[name] = self.hyper.server_momentum * self._velocity[name] + (old - mean[name])
            self.server[name] = old - self.hyper.server_rate * self._velocity[name]

    def state(self) -> dict[str, Any]:
        return {**super().state(), "velocity": self._velocity}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self._velocity = dict(state["velocity"])
