"""FedProx: FedAvg with a pull of the local model towards the global one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from pfl_benchmark.algorithms.fedavg import FedAvg
from pfl_benchmark.method import Between, Phase, Step, option, register


@dataclass(frozen=True)
class FedProxHyper:
    """Hyper-parameters of FedProx."""

    mu: float = option(0.01, "strength μ of the proximal term", least=0, search=Between(0.0001, 1))


@dataclass(frozen=True)
class Proximal:
    """Cross-entropy and (μ/2) ‖w − w_received‖²; its gradient μ (w − w_received) goes through momentum."""

    mu: float

    def __call__(self, step: Step) -> Tensor:
        return step.cross_entropy() + self.mu / 2 * step.squared_distance(step.constants["received"])


@register
class FedProx(FedAvg):
    """Clients minimise their loss plus (μ/2) ‖w − w_received‖².

    Source: Li et al., MLSys 2020, equation 2; litian96/FedProx flearn/trainers/fedprox.py with
    flearn/optimizer/pgd.py.

    Defaults: μ = 0.01. Officially main.py has 0, and the README knows no μ for all settings and says to tune
    it among 0.001, 0.01, 0.1, 0.5 and 1.

    Deviations: everyone does all local epochs. The pull goes through the momentum of local SGD (there is none
    there). The mean is unweighted by default.

    Traps: by default a tenth of the official participants (``--drop_percent``) send work of fewer epochs.
    """

    name = "fedprox"
    title = "FedProx"
    reference = "Li et al., MLSys 2020; litian96/FedProx"
    group = "global"
    publication = (
        "Federated Optimization in Heterogeneous Networks",
        "Li, Tian and Sahu, Anit Kumar and Zaheer, Manzil and Sanjabi, Maziar and Talwalkar, Ameet "
        "and Smith, Virginia",
        "MLSys",
        2020,
        "https://arxiv.org/abs/1812.06127",
    )
    pseudocode = (
        "send w to the participants",
        "w_k ← SGD on ℓ(w') + μ/2 ‖w' − w‖²",
        "w ← mean of the w_k",
    )
    Hyper = FedProxHyper
    too_large = ("mu",)
    tuning = ({"mu": 0.001}, {"mu": 0.1}, {"mu": 1.0})

    def phases(self, round: int) -> list[Phase]:
        return [
            replace(phase, objective=Proximal(self.hyper.mu), constants={"received": self.server})
            for phase in super().phases(round)
        ]
