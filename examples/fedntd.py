"""FedNTD: clients keep what the received model says of the classes that a sample does not have."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.method import Algorithm, Between, Phase, Step, option, register


@dataclass(frozen=True)
class FedNTDHyper:
    """Hyper-parameters of FedNTD."""

    beta: float = option(1.0, "weight β of the distillation", least=0, search=Between(0.01, 10))
    tau: float = option(1.0, "temperature τ of the distillation", least=1e-3, search=Between(0.5, 5))


@dataclass(frozen=True)
class NotTrue:
    """Cross-entropy, and β times the divergence from the received model among the other classes."""

    beta: float
    tau: float

    def __call__(self, step: Step) -> Tensor:
        logits, true = step.logits(), step.y.unsqueeze(2)
        own = (logits / self.tau).scatter(2, true, -1e9).log_softmax(2)
        received = step.apply(step.constants["received"]).detach() / self.tau
        known = received.scatter(2, true, -1e9).log_softmax(2)
        apart = F.kl_div(own, known, reduction="none", log_target=True).sum(2)
        # τ², as in the official code, keeps the size of the gradient.
        return step.cross_entropy(logits) + self.beta * self.tau**2 * step.mean(apart)


@register
class FedNTD(Algorithm):
    """FedAvg whose clients distil from the received model, among the classes that are not a sample's own.

    Source: Lee et al., NeurIPS 2022, equations 3 and 4; Lee-Gihun/FedNTD algorithms/fedntd/criterion.py.

    Defaults: β = 1 and τ = 1, as in config/fedntd.json.
    """

    name = "fedntd"
    title = "FedNTD"
    reference = "Lee et al., NeurIPS 2022; Lee-Gihun/FedNTD"
    Hyper = FedNTDHyper

    def phases(self, round: int) -> list[Phase]:
        objective, given = NotTrue(self.hyper.beta, self.hyper.tau), {"received": self.server}
        # The received model runs on every batch, too.
        return [replace(p, objective=objective, constants=given, passes=2) for p in super().phases(round)]
