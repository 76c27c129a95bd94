"""Similarity between clients: each receives the mean of its model and the nearest other one."""

from collections.abc import Sequence

import torch

from pfl_benchmark.method import (
    Aggregator,
    Algorithm,
    ClientStore,
    Gathered,
    LocalResult,
    Message,
    Params,
    RunContext,
    StackedModel,
    register,
)


@register
class Nearest(Algorithm):
    """Models are averaged in pairs of the nearest.

    Source: an example of docs/site/extend/method.md.
    """

    name = "nearest"
    title = "Nearest"
    reference = "an example of docs/site/extend/method.md"
    averages = False
    keeps_trained = False  # what a client has comes from the server

    def __init__(self, task: RunContext, hyper: object) -> None:
        super().__init__(task, hyper)
        self.server, self.clients = {}, ClientStore(task.initial, task.data.clients)

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(per_client=self.clients.gather(clients))

    def closing(self, clients: Sequence[int]) -> Message:
        return Message(per_client=self.clients.gather(clients))

    def upload(self, outcome: LocalResult) -> Params:
        return outcome.models["model"]

    def keep(self, outcome: LocalResult) -> None:
        """Nothing: the next model comes from the server."""

    def aggregator(self) -> Aggregator:
        return Gathered()

    def aggregate(self, mean: Params) -> None:
        flat = torch.cat([mean[name].flatten(1) for name in self.network.shapes()], 1).double()
        nearest = torch.cdist(flat, flat).topk(min(2, len(flat)), largest=False).indices[:, -1]
        mixed = {name: (mean[name] + mean[name][nearest]) / 2 for name in self.network.shapes()}
        self.clients.scatter(mean[Gathered.CLIENTS].tolist(), mixed)

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        return [StackedModel(self.network, self.clients.gather(clients))]
