"""FedAdam, FedYogi and FedAdagrad: FedAvg with an adaptive optimiser on the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from pfl_benchmark.method import Algorithm, Between, Params, RunContext, option, register


@dataclass(frozen=True)
class FedAdamHyper:
    """Hyper-parameters of FedAdam and its kin."""

    server_rate: float = option(0.01, "learning rate η of the server", least=0, search=Between(0.001, 1))
    beta1: float = option(0.9, "decay of the mean of changes", least=0, below=1)
    beta2: float = option(0.99, "decay of the mean of their squares (adam, yogi)", least=0, below=1)
    tau: float = option(
        1e-3, "least size τ of what a change is divided by", least=1e-12, search=Between(0.0001, 0.1)
    )
    squares: str = option(
        "adam",
        "how squares are accumulated: as in Adam, Yogi or Adagrad",
        choices=("adam", "yogi", "adagrad"),
    )


@register
class FedAdam(Algorithm):
    """The mean change Δ of the local models moves the server by ``η m / (√v + τ)``.

    ``m ← β₁ m + (1 − β₁) Δ``, and v follows Δ² as in Adam, Yogi or Adagrad, from τ² on.

    Source: Reddi et al., ICLR 2021, Algorithm 2; google-research/federated optimization/README.md and
    utils/optimizers/yogi.py.

    Defaults: β₁ = 0.9, β₂ = 0.99 and τ = 1e-3 as in the paper's experiments. η is tuned there, here it is
    0.01. FedYogi: ``--set squares=yogi``. Its FedAdagrad has β₁ = 0: ``--set squares=adagrad --set beta1=0``.

    Deviations: the mean is unweighted by default. No bias correction, as in the publication. The last round,
    in which everyone takes part, moves the server by one step, as every round does.

    Traps: the official code takes optimisers that correct the bias of their means, and its experiments begin
    with v = 0, not τ².
    """

    name = "fedadam"
    title = "FedAdam"
    reference = "Reddi et al., ICLR 2021; google-research/federated"
    group = "global"
    publication = (
        "Adaptive Federated Optimization",
        "Reddi, Sashank J. and Charles, Zachary and Zaheer, Manzil and Garrett, Zachary and Rush, "
        "Keith and Konečný, Jakub and Kumar, Sanjiv and McMahan, H. Brendan",
        "ICLR",
        2021,
        "https://arxiv.org/abs/2003.00295",
    )
    pseudocode = (
        "Δ ← mean of SGD(w) − w over the participants",
        "m ← β₁ m + (1 − β₁) Δ,  v ← β₂ v + (1 − β₂) Δ²",
        "w ← w + η m / (√v + τ)",
    )
    Hyper = FedAdamHyper
    too_large = ("server_rate",)
    ablations: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "yogi": {"squares": "yogi"},
        "adagrad": {"squares": "adagrad", "beta1": 0.0},
    }
    tuning = ({"server_rate": 0.003}, {"server_rate": 0.03}, {"tau": 0.01})
    learns_little = True  # the server moves by about η a round

    def __init__(self, task: RunContext, hyper: FedAdamHyper) -> None:
        super().__init__(task, hyper)
        self._mean = {name: torch.zeros_like(tensor) for name, tensor in self.server.items()}
        self._squares = {name: torch.full_like(tensor, hyper.tau**2) for name, tensor in self.server.items()}

    def aggregate(self, mean: Params) -> None:
        hyper = self.hyper
        for name, old in self.server.items():
            if name in self.network.buffers:  # a step may make a variance negative
                self.server[name] = mean[name]
                continue
            change, v = mean[name] - old, self._squares[name]
            square = change.square()
            self._mean[name] = hyper.beta1 * self._mean[name] + (1 - hyper.beta1) * change
            if hyper.squares == "adam":
                v = hyper.beta2 * v + (1 - hyper.beta2) * square
            elif hyper.squares == "yogi":
                v = v - (1 - hyper.beta2) * square * torch.sign(v - square)
            else:
                v = v + square
            self._squares[name] = v
            self.server[name] = old + hyper.server_rate * self._mean[name] / (v.sqrt() + hyper.tau)

    def state(self) -> dict[str, Any]:
        return {**super().state(), "mean": self._mean, "squares": self._squares}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self._mean, self._squares = dict(state["mean"]), dict(state["squares"])
