"""Per-FedAvg: a model from which one step of gradient descent personalises well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from pfl_benchmark.method import Algorithm, Between, LocalCall, Message, Phase, Rule, Step, option, register


@dataclass(frozen=True)
class PerFedAvgHyper:
    """Hyper-parameters of Per-FedAvg."""

    alpha: float = option(
        0.01,
        "rate α of the personalising step; that of the outer step β is --lr",
        least=0,
        search=Between(0.001, 0.1),
    )
    second_order: bool = option(
        False, "add the second-order term by a difference of gradients (Per-FedAvg (HF)); else (FO)"
    )
    delta: float = option(1e-3, "with second_order: width δ of the difference", least=1e-6)
    ft_epochs: int = option(1, "epochs of steps at α before the evaluation; 0: the common model", least=0)


@dataclass(frozen=True)
class Meta(Rule):
    """``w ← w − β (I − α H) ∇ℓ(w − α ∇ℓ(w; D); D′)``, with the Hessian H on a third batch D″ or left out."""

    alpha: float
    delta: float | None  # None: first order

    @property
    def batches(self) -> int:  # type: ignore[override]
        return 2 if self.delta is None else 3

    def __call__(self, step: Step) -> Tensor:
        inner, outer, *rest = step.split(self.batches)
        own = {name: step.params[name] for name in step.rates}
        gradients, losses = inner.gradient(own)
        ahead = {name: own[name] - self.alpha * gradients[name] for name in own}
        slopes, _ = outer.gradient(ahead)
        if self.delta is not None:
            (third,) = rest
            (plus, _), (minus, _) = (
                third.gradient({name: own[name] + side * slopes[name] for name in own})
                for side in (self.delta, -self.delta)
            )
            scale = self.alpha / (2 * self.delta)
            slopes = {name: slopes[name] - scale * (plus[name] - minus[name]) for name in own}
        step.descend(slopes)
        return losses


@register
class PerFedAvg(Algorithm):
    """Model-agnostic meta-learning: local steps reduce the loss after a personalising step.

    Source: Fallah et al., NeurIPS 2020, Algorithm 1; there is no official code, CharlieDinh/pFedMe
    FLAlgorithms/users/userperavg.py is the one commonly used (first order).

    Defaults: α = 0.01 as in the paper's experiments, whose β is 0.001 (here --lr). CharlieDinh's README has
    0.005 for α and 0.001 for β.

    Deviations: a step takes two batches (three with the second-order term) of one epoch's order, so that
    there are half (a third) as many steps as in FedAvg (PFLlib trains twice a round instead). The outer step
    has the protocol's momentum (none there). Before it is evaluated a client fine-tunes the model for an
    epoch at α with the engine's SGD (the paper: one step).

    Traps: userperavg.py takes the personalising step before the evaluation on a batch of *test* data, with
    its labels, and a second one at β. Its local epochs are single steps.
    """

    name = "per-fedavg"
    title = "Per-FedAvg"
    reference = "Fallah et al., NeurIPS 2020; no official code, CharlieDinh/pFedMe userperavg.py"
    group = "fine-tuning"
    publication = (
        "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning "
        "Approach",
        "Fallah, Alireza and Mokhtari, Aryan and Ozdaglar, Asuman",
        "NeurIPS",
        2020,
        "https://arxiv.org/abs/2002.07948",
    )
    pseudocode = (
        "w' ← w_k − α ∇ℓ(w_k; batch)",
        "w_k ← w_k − β ∇ℓ(w'; next batch)",
        "w ← mean of the w_k; evaluate after a step from w",
    )
    Hyper = PerFedAvgHyper
    too_large = ("alpha",)
    tuning = ({"alpha": 0.001}, {"alpha": 0.1}, {"ft_epochs": 5}, {"second_order": True})

    def phases(self, round: int) -> list[Phase]:
        hyper = self.hyper
        rule = Meta(hyper.alpha, hyper.delta if hyper.second_order else None)
        return [replace(phase, rule=rule) for phase in super().phases(round)]

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        if self.hyper.second_order:  # whose term differentiates a third of the samples twice
            sizes = {client: self.task.data.train_sizes[client] for client in clients}
            parts = [self.local_samples(client) / size / 3 * size for client, size in sizes.items()]
            self.meter.charge(sum(map(math.ceil, parts)))
        return super().begin(clients, message, round)

    def adaptation(self) -> list[Phase]:
        if not self.hyper.ft_epochs:
            return []
        return [Phase.of(self.network.names, self.hyper.alpha, self.hyper.ft_epochs)]
