"""FLUTE: FedPer whose heads are drawn to an even arrangement of classes, by clients and by the server."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from pfl_benchmark.method import (
    Aggregator,
    Algorithm,
    Between,
    Gathered,
    LocalCall,
    LocalResult,
    Message,
    Network,
    Params,
    Phase,
    RunConfig,
    Step,
    UserError,
    option,
    register,
    select,
)


@dataclass(frozen=True)
class FLUTEHyper:
    """Hyper-parameters of FLUTE."""

    lam1: float = option(
        0.25, "weight λ1 of the distance between the head and an even arrangement", least=0,
        search=Between(0.01, 10),
    )  # fmt: skip
    lam2: float = option(0.0025, "weight λ2 of the head's squared norm", least=0, search=Between(0.0001, 0.1))
    lam3: float = option(0.0005, "weight λ3 of the squared norm of a batch's features", least=0)
    joint_epochs: int = option(
        1, "last epochs, in which the body trains, too; before them the head trains alone", least=1,
        search=(1, 2, 5),
    )  # fmt: skip
    server_lr: float = option(0.5, "rate of the server's step on the heads", least=0, search=Between(0.05, 5))


def even(labels: Tensor, classes: int) -> Tensor:
    """What W Wᵀ / ‖W Wᵀ‖ of a head should be [C, C]: (I − 1 1ᵀ / C) / √(C − 1), 0 for classes not held."""
    held = torch.bincount(labels, minlength=classes) > 0
    target = torch.eye(classes, device=labels.device) - 1 / classes
    return target * held * held[:, None] / math.sqrt(max(classes - 1, 1))


def uneven(heads: Tensor, targets: Tensor) -> Tensor:
    """Distance [m] of heads [m, C, d] from where they should be (`even`) [m, C, C]."""
    products = heads @ heads.transpose(1, 2)
    return (products / products.norm(dim=(1, 2), keepdim=True) - targets).norm(dim=(1, 2))


@dataclass(frozen=True)
class Even:
    """Cross-entropy, the head's distance from an even arrangement, its norm and that of the features."""

    head: str
    lam1: float
    lam2: float
    lam3: float

    def __call__(self, step: Step) -> Tensor:
        features, head = step.apply(stop=-1), step.params[self.head]
        losses = step.cross_entropy(step.apply(x=features, start=-1))
        losses = losses + self.lam1 * uneven(head, step.constants["client"]["target"].to(head))
        losses = losses + self.lam2 * head.square().sum((1, 2))
        if self.lam3:
            losses = losses + self.lam3 * step.count * step.mean(features.flatten(2).square().sum(2))
        return losses


@register
class FLUTE(Algorithm):
    """The body is averaged; the server moves each head a step towards an even arrangement of its classes.

    Source: Liu, Shen and Yang, ICML 2024, the extension to classification; FL-bench src/client/flute.py,
    src/server/flute.py. No official code was found.

    Defaults: λ1 = 0.25, λ2 = 0.0025, λ3 = 0.0005, one joint epoch and a rate of 0.5 at the server, those of
    FL-bench. With n participants a head moves by rate / n, as there.

    Deviations: the head's bias stays with the client, its weight is sent and sent back. Local SGD has
    momentum, of its own in both phases. The mean is unweighted unless ``--aggregation samples``.

    Traps: the features' norm is that of a whole batch, so that λ3 depends on the batch size. FL-bench takes
    the loss of detached features, so that the body is never trained; and averages heads, too, with which a
    client begins that takes part for the first time.
    """

    name = "flute"
    title = "FLUTE"
    reference = "Liu et al., ICML 2024; FL-bench src/server/flute.py"
    group = "decoupled"
    publication = (
        "Federated Representation Learning in the Under-Parameterized Regime",
        "Liu, Renpu and Shen, Cong and Yang, Jing",
        "ICML",
        2024,
        "https://arxiv.org/abs/2406.04596",
    )
    pseudocode = (
        "(θ_k, h_k) ← SGD on ℓ + λ1 ‖h h^T/‖h h^T‖ − E_k‖ + λ2 ‖h‖² + λ3 ‖θ(x)‖², h_k first",
        "θ ← mean of the θ_k",
        "h_k ← h_k − η/n ∇ ‖h_k h_k^T/‖h_k h_k^T‖ − E_k‖ at the server",
    )
    Hyper = FLUTEHyper
    averages = False  # its uploads have heads, too
    too_large = ("lam1", "lam2", "lam3")
    refuses: ClassVar[Mapping[str, str]] = {
        "local_steps": "of which some train the head alone (joint_epochs)"
    }
    tuning = ({"lam1": 1.0}, {"lam1": 0.05}, {"server_lr": 0.05})

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: FLUTEHyper) -> None:
        if hyper.joint_epochs > config.local_epochs:
            raise UserError(
                f"joint_epochs={hyper.joint_epochs} is more than --local-epochs {config.local_epochs}; "
                "give at most that"
            )

    @property
    def _head(self) -> str:
        return f"{self.network.names[-1]}.weight"

    def shared_layers(self) -> tuple[str, ...]:
        return self.network.names[:-1]

    def phases(self, round: int) -> list[Phase]:
        hyper, names = self.hyper, self.network.names
        (joint,) = super().phases(round)
        objective = Even(self._head, hyper.lam1, hyper.lam2, hyper.lam3)
        joint = replace(joint, epochs=hyper.joint_epochs, objective=objective)
        alone = replace(
            joint,
            rates={names[-1]: self.config.lr},
            epochs=self.config.local_epochs - hyper.joint_epochs,
            objective=replace(objective, lam3=0.0),
        )
        return [alone, joint]

    def message(self, clients: Sequence[int], round: int) -> Message:
        first = select(self.task.initial, [name for name in self._personal_tensors() if name != self._head])
        return Message(self.server, per_client=self._heads(clients), first=first)

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        call.constants["client"] = {"target": self._targets(clients)}
        return call

    def upload(self, outcome: LocalResult) -> Params:
        return select(outcome.models["model"], [*self.server, self._head])

    def aggregator(self) -> Aggregator:
        return Gathered()

    def aggregate(self, mean: Params) -> None:
        self.server.update(Gathered.mean(select(mean, self.server), mean[Gathered.WEIGHTS]))
        clients = mean[Gathered.CLIENTS].tolist()
        heads = mean[self._head].clone().requires_grad_()
        with torch.enable_grad():
            loss = uneven(heads, self._targets(clients).to(heads)).mean()
        (slope,) = torch.autograd.grad(loss, [heads])
        moved = heads.detach() - self.hyper.server_lr * slope
        self.clients.scatter(clients, {**self.clients.gather(clients), self._head: moved})

    def closing(self, clients: Sequence[int]) -> Message:
        return Message(self.server, per_client=self._heads(clients))

    def _heads(self, clients: Sequence[int]) -> Params:
        return select(self.clients.gather(clients), [self._head])

    def _targets(self, clients: Sequence[int]) -> Tensor:
        data = self.task.data
        return torch.stack([even(data.labels(client), data.classes) for client in clients])
