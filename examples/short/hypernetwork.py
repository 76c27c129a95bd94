"""A hypernetwork: the server makes each client's last layer of a vector, and learns from the change."""

from collections.abc import Sequence

import torch

import pfl_benchmark.method as pfl

WIDTH, RATE = 8, 0.1


@pfl.register
class Generated(pfl.Algorithm):
    """A common body; heads are θ_0's plus a linear map of the client's vector.

    Source: an example of docs/site/extend/method.md.
    """

    name = "generated"
    title = "Generated"
    reference = "an example of docs/site/extend/method.md"
    evaluated = "personal"
    averages = False
    no_newcomers = "whose server has a trained vector for every client"

    def __init__(self, task: pfl.RunContext, hyper: object) -> None:
        super().__init__(task, hyper)
        self.head = f"{task.network.names[-1]}.weight"
        rng, base = task.streams.get("init", 1), task.initial[self.head]
        vectors = torch.from_numpy(rng.standard_normal((task.data.clients, WIDTH))).to(base)
        self.server |= {"map": base.new_zeros(WIDTH, base.numel()), "vectors": vectors}

    def _models(self, clients: Sequence[int]) -> pfl.Params:
        models = pfl.expand({name: self.server[name] for name in self.network.shapes()}, len(clients))
        made = self.server["vectors"][list(clients)] @ self.server["map"]
        return {**models, self.head: models[self.head] + made.view_as(models[self.head])}

    def message(self, clients: Sequence[int], round: int) -> pfl.Message:
        return pfl.Message(per_client=self._models(clients))

    def closing(self, clients: Sequence[int]) -> pfl.Message:
        return pfl.Message(per_client=self._models(clients))

    def upload(self, outcome: pfl.LocalResult) -> pfl.Params:
        return outcome.models["model"]

    def aggregator(self) -> pfl.Aggregator:
        return pfl.Gathered()

    def aggregate(self, mean: pfl.Params) -> None:
        clients = mean[pfl.Gathered.CLIENTS].tolist()
        change = (mean[self.head] - self._models(clients)[self.head]).flatten(1) / len(clients)
        vectors, old = self.server["vectors"].clone(), self.server["map"]
        self.server["map"] = old + RATE * vectors[clients].T @ change
        vectors[clients] += RATE * change @ old.T
        body = {name: mean[name] for name in self.network.shapes() if name != self.head}
        self.server |= {"vectors": vectors, **pfl.Gathered.mean(body, mean[pfl.Gathered.WEIGHTS])}

    def members(self, clients: Sequence[int]) -> list[pfl.StackedModel]:
        return [pfl.StackedModel(self.network, self._models(clients))]
