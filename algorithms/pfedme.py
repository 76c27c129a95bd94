"""pFedMe: personal models as proximal points of the local ones (Moreau envelopes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from pfl_benchmark.method import (
    Algorithm,
    Between,
    ClientStore,
    LocalCall,
    Message,
    Params,
    Phase,
    Rule,
    RunContext,
    StackedModel,
    Step,
    add_prefix,
    option,
    register,
    strip_prefix,
)

THETA = "theta"


@dataclass(frozen=True)
class PFedMeHyper:
    """Hyper-parameters of pFedMe."""

    lam: float = option(
        15.0, "strength λ of the pull between personal and local model", least=0, search=Between(1, 50)
    )
    inner_steps: int = option(5, "steps K of gradient descent on the personal model for each batch", least=1)
    personal_rate: float = option(0.01, "learning rate of these steps", least=0, search=Between(0.001, 0.1))
    decay: float = option(0.001, "weight decay of the personal model, in these steps", least=0)
    beta: float = option(1.0, "step β of the server towards the mean of the local models", least=0)


@dataclass(frozen=True)
class Envelope(Rule):
    """K steps on ℓ(θ) + (λ/2) ‖θ − w‖² with the same batch, then ``w ← w − η λ (w − θ)``.

    With weight decay μ the K steps are on (μ/2) ‖θ‖², too.

    Statistics of batch normalisation are θ's: w takes them over, since it makes no passes.
    """

    lam: float
    steps: int
    decay: float = 0.0

    def __call__(self, step: Step) -> Tensor:
        theta = strip_prefix(THETA, step.params)
        first: Tensor | None = None
        for _ in range(self.steps):
            gradients, losses = step.gradient(theta)
            first = losses if first is None else first
            for name, gradient in gradients.items():
                own = theta[name]
                slope = gradient + self.lam * (own - step.params[name]) + self.decay * own
                own.sub_(slope, alpha=step.rates[f"{THETA}.{name}"])
        for name in gradients:
            local = step.params[name]
            local.sub_(local - theta[name], alpha=step.rates[name] * self.lam)
        for name in theta.keys() - gradients.keys():
            step.params[name].copy_(theta[name])
        assert first is not None
        return first


@register
class PFedMe(Algorithm):
    """Every batch moves a personal model θ towards its proximal point, and the local model w towards θ.

    Source: Dinh et al., NeurIPS 2020, Algorithm 1; CharlieDinh/pFedMe FLAlgorithms/users/userpFedMe.py (θ
    goes on from batch to batch and begins each round at the received w), servers/serverpFedMe.py and
    optimizers/fedoptimizer.py (weight decay of θ, which the publication does not have).

    Defaults: λ = 15, K = 5, β = 1 of main.py, decay 0.001, and the README's rate 0.01 for θ on CIFAR-10,
    where main.py's 0.09 diverges. The rate for w, which here is --lr, is 0.01 there, too; η λ must stay
    below 2.

    Deviations: samples count K times. No momentum, as there, and no ``--weight-decay``: θ has its own
    (`decay`). Clients are evaluated with θ; under ``--last-round cohort`` one that never took part has θ_0.
    The mean is unweighted by default.

    Traps: a local epoch of the official code is one batch. All users train in every round, and only a sample
    of them is averaged, weighted by samples. What is reported as personal is the accuracy of w: userpFedMe.py
    overwrites θ with it before the evaluation.
    """

    name = "pfedme"
    title = "pFedMe"
    reference = "Dinh et al., NeurIPS 2020; CharlieDinh/pFedMe"
    group = "regularised"
    publication = (
        "Personalized Federated Learning with Moreau Envelopes",
        "Dinh, Canh T. and Tran, Nguyen H. and Nguyen, Tuan Dung",
        "NeurIPS",
        2020,
        "https://arxiv.org/abs/2006.08848",
    )
    pseudocode = (
        "θ_k ← argmin ℓ(θ; batch) + λ/2 ‖θ − w_k‖², by K steps",
        "w_k ← w_k − η λ (w_k − θ_k)",
        "w ← (1 − β) w + β · mean of the w_k",
    )
    Hyper = PFedMeHyper
    too_large = ("personal_rate", "lam")
    refuses: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("optimizer", "nesterov", "clip_norm"),
        "whose steps are gradient descent on a proximal problem of their own",
    )
    tuning = ({"lam": 5.0}, {"personal_rate": 0.03}, {"personal_rate": 0.003})

    def __init__(self, task: RunContext, hyper: PFedMeHyper) -> None:
        super().__init__(task, hyper)
        self.clients = ClientStore(add_prefix(THETA, task.initial), task.data.clients)

    def phases(self, round: int) -> list[Phase]:
        hyper, (phase,) = self.hyper, super().phases(round)
        rates = {**phase.rates, THETA: hyper.personal_rate}
        rule = Envelope(hyper.lam, hyper.inner_steps, hyper.decay)
        return [replace(phase, rates=rates, rule=rule, passes=hyper.inner_steps)]

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        params = call.models["model"].params
        params.update(add_prefix(THETA, params))
        return call

    def aggregate(self, mean: Params) -> None:
        if self.hyper.beta != 1:
            mean = {name: own + self.hyper.beta * (mean[name] - own) for name, own in self.server.items()}
        super().aggregate(mean)

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        return [StackedModel(self.network, strip_prefix(THETA, self.clients.gather(clients)))]

    def closing(self, clients: Sequence[int]) -> Message:
        return Message()  # clients are evaluated with what they keep
