"""APFL: a mixture of a global and a personal model, whose weight can be learned."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
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
    along,
    option,
    register,
    strip_prefix,
)

PERSONAL = "personal"
SHRINK = 0.02  # flow_utils.py: weight of α itself in its gradient


@dataclass(frozen=True)
class APFLHyper:
    """Hyper-parameters of APFL."""

    alpha: float = option(
        0.5,
        "weight α of the personal model in the mixture, at first",
        least=0,
        below=1.001,
        search=Between(0.1, 0.9, log=False),
    )
    adaptive: bool = option(False, "learn α: a step on it with the first batch of every participation")


@dataclass(frozen=True)
class Mixed(Rule):
    """``w ← w − η ∇ℓ(w)`` and ``v ← v − η α ∇ℓ(u)``, ``α ← α − η ⟨∇ℓ(u), v − w⟩`` at u = α v + (1 − α) w.

    The steps on w and v are the engine's, with its momentum. Statistics of batch normalisation are not mixed:
    those of v are u's.
    """

    def __call__(self, step: Step) -> Tensor:
        personal = strip_prefix(PERSONAL, step.params)
        common = {name: step.params[name] for name in personal}
        alpha, due = step.params["mix.alpha"], step.params["mix.due"]
        gradients, _ = step.gradient(common)
        slopes, losses = step.gradient(mixture(alpha, personal, common, step.network.buffers))
        gaps = [(slopes[n] * (personal[n] - common[n])).flatten(1).sum(1, keepdim=True) for n in slopes]
        new = alpha - step.rates[f"{PERSONAL}.{next(iter(slopes))}"] * (sum(gaps) + SHRINK * alpha)
        new = torch.where(due > 0, new.clamp(0, 1), alpha)
        pulls = add_prefix(PERSONAL, {name: along(alpha, slope) * slope for name, slope in slopes.items()})
        still = {n: torch.zeros_like(step.params[n]) for n in step.rates if n in ("mix.alpha", "mix.due")}
        step.descend({**gradients, **pulls, **still})
        if "mix.alpha" in step.rates:
            alpha.copy_(new)
            due.zero_()
        return losses


def mixture(alpha: Tensor, personal: Params, common: Params, fixed: Collection[str] = ()) -> Params:
    """Stacked models α v + (1 − α) w, for weights [m, 1]; tensors named in `fixed` are those of v."""
    mixed = {n: common[n] + along(alpha, v) * (v - common[n]) for n, v in personal.items()}
    return {**mixed, **{name: personal[name] for name in fixed}}


@register
class APFL(Algorithm):
    """Clients train the global model, which is sent, and a personal one as a part of their mixture.

    Source: Deng et al., 2020, Algorithm 1 (the mixture is one of parameters); MLOPTPSU/FedTorch
    fedtorch/comms/trainings/federated/apfl.py, fedtorch/comms/utils/flow_utils.py and eval.py.

    Defaults: α = 0.5, not adaptive (fedtorch/parameters.py). With ``adaptive`` one step on α a round, with
    0.02 α added to its gradient, cut to [0, 1], as in flow_utils.py.

    Deviations: all gradients of a step are taken at its start (there the personal model's after the global
    one's step); samples count twice. Both have momentum (none there by default). Clients are evaluated with
    the mixture of their personal model and the last aggregate, not their own copy of it.

    Traps: the official code mixes the outputs of the two models, not their parameters, and in the step on α
    it mixes the gradients that the two have at hand.
    """

    name = "apfl"
    title = "APFL"
    reference = "Deng et al., arXiv 2003.13461; MLOPTPSU/FedTorch"
    group = "ensembles"
    publication = (
        "Adaptive Personalized Federated Learning",
        "Deng, Yuyang and Kamani, Mohammad Mahdi and Mahdavi, Mehrdad",
        "arXiv 2003.13461",
        2020,
        "https://arxiv.org/abs/2003.13461",
    )
    pseudocode = (
        "w_k ← SGD(w), which is sent and averaged",
        "v_k ← v_k − η ∇ℓ(α v_k + (1 − α) w_k)",
        "evaluate α v_k + (1 − α) w",
    )
    Hyper = APFLHyper
    refuses: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("optimizer", "clip_norm"),
        "whose step takes the gradients of two models, one of them times its share of the mixture",
    )
    tuning = ({"alpha": 0.25}, {"alpha": 0.75}, {"adaptive": True})

    def __init__(self, task: RunContext, hyper: APFLHyper) -> None:
        super().__init__(task, hyper)
        alpha = torch.full((1,), hyper.alpha, device=task.data.device)
        kept = {**add_prefix(PERSONAL, task.initial), "mix.alpha": alpha}
        self.clients = ClientStore(kept, task.data.clients)

    def phases(self, round: int) -> list[Phase]:
        names = (*self.network.names, PERSONAL, *(["mix"] if self.hyper.adaptive else []))
        (phase,) = super().phases(round)
        return [replace(phase, rates=dict.fromkeys(names, self.config.lr), rule=Mixed(), passes=2)]

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(self.server, first=self.task.initial)

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call, kept = super().begin(clients, message, round), self.clients.gather(clients)
        call.models["model"].params.update(kept, **{"mix.due": torch.ones_like(kept["mix.alpha"])})
        return call

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        kept, common = self.clients.gather(clients), self.assemble(clients, self.server)
        mixed = mixture(kept["mix.alpha"], strip_prefix(PERSONAL, kept), common, self.network.buffers)
        return [StackedModel(self.network, mixed)]
