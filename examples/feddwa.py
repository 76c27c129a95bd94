"""FedDWA: every client gets a mixture of models, weighted by their distance to its own model a step ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

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
    RunContext,
    StackedModel,
    add_prefix,
    option,
    register,
    select,
    strip_prefix,
)

AHEAD = "ahead"


@dataclass(frozen=True)
class FedDWAHyper:
    """Hyper-parameters of FedDWA."""

    neighbours: int = option(5, "models K that a client's next model is mixed of", least=1, search=(2, 5, 10))
    ahead_epochs: int = option(5, "epochs of the model that goes ahead", least=1, search=(1, 5))


@register
class FedDWA(Algorithm):
    """A client trains on for some epochs and sends both models; the server mixes the nearest to the second.

    Source: Liu et al., IJCAI 2023, Algorithm 1; Sherrylife/FedDWA servers/serverFedDWA.py. Weights of client
    k are 1 / ‖ahead of k − model of j‖² over the participants j, the K largest, with sum 1.

    Defaults: K = 5, and as many epochs ahead as local ones (`next_round` = 1).

    Deviations: local SGD has momentum. A client begins from what was mixed for it when it last took part.
    """

    name = "feddwa"
    title = "FedDWA"
    reference = "Liu et al., IJCAI 2023; Sherrylife/FedDWA"
    Hyper = FedDWAHyper
    averages = False
    keeps_trained = False

    def __init__(self, task: RunContext, hyper: FedDWAHyper) -> None:
        super().__init__(task, hyper)
        self.server = {}
        self.clients = ClientStore(task.initial, task.data.clients)  # as the server mixed them

    def phases(self, round: int) -> list[Phase]:
        (phase,) = super().phases(round)
        return [phase, replace(phase, epochs=self.hyper.ahead_epochs, model=AHEAD, stream="batches-ahead")]

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(per_client=self.clients.gather(clients))

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        call.models[AHEAD] = StackedModel(self.network, dict(call.models["model"].params))
        return call

    def upload(self, outcome: LocalResult) -> Params:
        return {**outcome.models["model"], **add_prefix(AHEAD, outcome.models[AHEAD])}

    def keep(self, outcome: LocalResult) -> None:
        """Nothing: what a client begins with next comes from the server."""

    def aggregator(self) -> Aggregator:
        return Gathered()

    def aggregate(self, mean: Params) -> None:
        models, ahead = select(mean, self.network.shapes()), strip_prefix(AHEAD, mean)
        flat, flat_ahead = (torch.cat([t.flatten(1) for t in p.values()], 1) for p in (models, ahead))
        weights = 1 / torch.cdist(flat_ahead.double(), flat.double()).square().clamp(min=1e-12)
        least = weights.topk(min(self.hyper.neighbours, len(weights)), 1).values[:, -1:]
        weights = torch.where(weights >= least, weights, torch.zeros_like(weights)).to(flat)
        weights = weights / weights.sum(1, keepdim=True)
        mixed = {name: torch.tensordot(weights, tensor, 1) for name, tensor in models.items()}
        self.clients.scatter(mean[Gathered.CLIENTS].tolist(), mixed)

    def closing(self, clients: Sequence[int]) -> Message:
        return Message(per_client=self.clients.gather(clients))

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        return [StackedModel(self.network, self.clients.gather(clients))]
