"""FedDWA: every client gets a mixture of models, weighted by their distance to its own model a step ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pfl_benchmark.method import (
    Aggregator,
    Algorithm,
    ClientStore,
    Gathered,
    LocalCall,
    LocalResult,
    Message,
    Params,
    Phase,
    Rule,
    RunContext,
    StackedModel,
    Step,
    add_prefix,
    exact,
    option,
    register,
    select,
    strip_prefix,
)

AHEAD, TRAINED = "ahead", "trained"


@dataclass(frozen=True)
class FedDWAHyper:
    """Hyper-parameters of FedDWA."""

    neighbours: int = option(5, "models K that a client's next model is mixed of", least=1, search=(2, 5, 10))
    ahead_epochs: int = option(
        -1, "epochs of the model that goes ahead; -1: as many as --local-epochs", least=-1
    )


@dataclass(frozen=True)
class Noted(Rule):
    """The engine's step, and a copy of the model that later phases leave as it is."""

    def __call__(self, step: Step) -> Tensor:
        gradients, losses = step.gradient()
        step.descend(gradients)
        for name, tensor in strip_prefix(TRAINED, step.params).items():
            tensor.copy_(step.params[name])
        return losses


def nearest(squares: Tensor, count: int) -> Tensor:
    """Weights [n, n] of the `count` models nearest to each client's, 1 / squared distance, with sum 1."""
    weights = 1 / squares.clamp(min=1e-12)
    least = weights.topk(min(count, len(weights)), 1).values[:, -1:]
    weights = torch.where(weights >= least, weights, torch.zeros_like(weights))
    return weights / weights.sum(1, keepdim=True)


@register
class FedDWA(Algorithm):
    """A client trains on for some epochs and sends both models; the server mixes the nearest to the second.

    Source: Liu et al., IJCAI 2023, Algorithm 1; Sherrylife/FedDWA servers/serverFedDWA.py,
    clients/clientFedDWA.py. Weights of client k are 1 / ‖ahead of k − model of j‖² over the participants j,
    the K largest, with sum 1.

    Defaults: K = 5, and as many epochs ahead as local ones (`next_round` = 1).

    Deviations: local SGD has momentum, of its own ahead. Statistics of batch normalisation are mixed like
    parameters, and do not count for distances; there they stay with the client.

    Traps: a client is compared with the participants of one round alone, and begins from what was mixed for
    it when it last took part. It sends two models and receives one.
    """

    name = "feddwa"
    title = "FedDWA"
    reference = "Liu et al., IJCAI 2023; Sherrylife/FedDWA"
    group = "clustered"
    publication = (
        "FedDWA: Personalized Federated Learning with Dynamic Weight Adjustment",
        "Liu, Jiahao and Wu, Jiang and Chen, Jinyu and Hu, Miao and Zhou, Yipeng and Wu, Di",
        "IJCAI",
        2023,
        "https://arxiv.org/abs/2305.06124",
    )
    pseudocode = (
        "w_k ← SGD(u_k); a_k ← SGD(w_k), which both are sent",
        "p_kj ← 1 / ‖a_k − w_j‖², the K largest of a client, with sum 1",
        "u_k ← Σ_j p_kj w_j, which is sent back",
    )
    Hyper = FedDWAHyper
    averages = False  # its uploads are two models
    keeps_trained = False
    tuning = ({"neighbours": 2}, {"neighbours": 10}, {"ahead_epochs": 1})

    def __init__(self, task: RunContext, hyper: FedDWAHyper) -> None:
        super().__init__(task, hyper)
        self.server = {}
        self.clients = ClientStore(task.initial, task.data.clients)  # as the server mixed them

    def phases(self, round: int) -> list[Phase]:
        (ahead,) = super().phases(round)
        asked = self.hyper.ahead_epochs
        rates = {**ahead.rates, TRAINED: self.config.lr}
        return [
            replace(ahead, rates=rates, rule=Noted()),
            replace(ahead, epochs=self.local_work if asked < 0 else asked, stream="batches-ahead"),
        ]

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(per_client=self.clients.gather(clients))

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        params = call.models["model"].params
        params.update(add_prefix(TRAINED, {name: tensor.clone() for name, tensor in params.items()}))
        return call

    def upload(self, outcome: LocalResult) -> Params:
        model = outcome.models["model"]
        ahead = add_prefix(AHEAD, select(model, self.network.shapes()))
        return {**strip_prefix(TRAINED, model), **ahead}

    def keep(self, outcome: LocalResult) -> None:
        """Its trained model, until the server has mixed one for it."""
        self.clients.scatter(outcome.clients, strip_prefix(TRAINED, outcome.models["model"]))

    def aggregator(self) -> Aggregator:
        return Gathered()

    def aggregate(self, mean: Params) -> None:
        models, ahead = select(mean, self.network.shapes()), strip_prefix(AHEAD, mean)
        trained, after = (
            exact(torch.cat([own[name].flatten(1) for name in self.network.trainable], 1))
            for own in (models, ahead)
        )
        weights = nearest(torch.cdist(after, trained).square(), self.hyper.neighbours).to(
            models[self.network.trainable[0]]
        )
        mixed = {name: torch.tensordot(weights, tensor, 1) for name, tensor in models.items()}
        self.clients.scatter(mean[Gathered.CLIENTS].tolist(), mixed)

    def closing(self, clients: Sequence[int]) -> Message:
        return Message(per_client=self.clients.gather(clients))

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        return [StackedModel(self.network, self.clients.gather(clients))]
