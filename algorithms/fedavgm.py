"""FedAvgM: FedAvg with momentum on the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pfl_benchmark.method import Algorithm, Between, Params, RunContext, option, register


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
    nesterov: bool = option(False, "take Nesterov's step", absent=False)


@register
class FedAvgM(Algorithm):
    """The mean change of the local models is a gradient: ``v ← β v + (w − w̄); w ← w − η v``.

    Source: Hsu et al., 2019, section 4.2; there is no official code.

    Defaults: β = 0.9 and η = 0.1. The paper keeps η at 1 and chooses β and the clients' rate. With η = 1 the
    digits with two classes a client stay near guessing or diverge, with either step; with η = 0.1 a change
    that lasts moves the server as far as in FedAvg.

    Deviations: the step is that of the paper's equation; its experiments, and Flower's reproduction
    (baselines/fedavgm), take Nesterov's, along (w − w̄) + β v: ``nesterov``. The mean is unweighted unless
    ``--aggregation samples``. The last round, in which everyone takes part, moves the server by a part of the
    change, as every round does.
    """

    name = "fedavgm"
    title = "FedAvgM"
    reference = "Hsu et al., arXiv 1909.06335; no official code"
    group = "global"
    publication = (
        "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
        "Hsu, Tzu-Ming Harry and Qi, Hang and Brown, Matthew",
        "arXiv 1909.06335",
        2019,
        "https://arxiv.org/abs/1909.06335",
    )
    pseudocode = (
        "Δ ← w − mean of SGD(w) over the participants",
        "v ← β v + Δ",
        "w ← w − η v",
    )
    Hyper = FedAvgMHyper
    too_large = ("server_rate",)
    tuning = (
        {"server_momentum": 0.7},
        {"server_momentum": 0.97},
        {"server_rate": 0.3},
        {"server_rate": 1.0},
        {"nesterov": True},
    )

    learns_little = True  # momentum goes on with what rounds before have forgotten

    def __init__(self, task: RunContext, hyper: FedAvgMHyper) -> None:
        super().__init__(task, hyper)
        self._velocity = {name: torch.zeros_like(tensor) for name, tensor in self.server.items()}

    def aggregate(self, mean: Params) -> None:
        momentum = self.hyper.server_momentum
        for name, old in self.server.items():
            if name in self.network.buffers:  # a step may make a variance negative
                self.server[name] = mean[name]
                continue
            velocity = self._velocity[name] = momentum * self._velocity[name] + (old - mean[name])
            step = old - mean[name] + momentum * velocity if self.hyper.nesterov else velocity
            self.server[name] = old - self.hyper.server_rate * step

    def state(self) -> dict[str, Any]:
        return {**super().state(), "velocity": self._velocity}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self._velocity = dict(state["velocity"])
