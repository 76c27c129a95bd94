"""FedAS: a shared body that clients align with their own features; a mean by Fisher information."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pfl_benchmark.algorithms.fedproto import class_means
from pfl_benchmark.method import (
    Aggregator,
    Algorithm,
    Between,
    ClientStore,
    LocalCall,
    LocalResult,
    Message,
    Params,
    Phase,
    Rule,
    RunContext,
    StackedModel,
    Step,
    WeightedMean,
    exact,
    expand,
    option,
    register,
)

TRACE = "fisher.trace"
LEAST = 1e-30  # trace in place of 0: the mean needs a positive weight


@dataclass(frozen=True)
class FedASHyper:
    """Hyper-parameters of FedAS."""

    align_epochs: int = option(
        1,
        "epochs of the body towards the client's own mean features",
        least=0,
        search=(1, 2, 5),
    )
    align_rate: float = option(0.01, "learning rate of these epochs", least=0, search=Between(0.001, 0.1))


@dataclass(frozen=True)
class Aligned(Rule):
    """A step, without momentum, on the sum over classes of the mean squared gap to the client's prototype."""

    def __call__(self, step: Step) -> Tensor:
        gradients, losses = step.gradient(objective=gap)
        for name, gradient in gradients.items():
            step.params[name].sub_(gradient, alpha=step.rates[name])
        return losses


def gap(step: Step) -> Tensor:
    """Sum over a batch's classes of the mean squared gap between their features and prototypes [m]."""
    prototypes = step.constants["client"]["prototypes"]
    features, held = step.apply(stop=-1).flatten(2), step.sample_weights > 0
    targets = prototypes.gather(1, step.y[..., None].expand_as(features))
    same = ((step.y[:, :, None] == step.y[:, None]) & held[:, None]).sum(2)
    return ((features - targets).square().mean(2) * held / same.clamp(min=1)).sum(1)


@dataclass(frozen=True)
class Fisher(Rule):
    """Adds up the squared norms of the batches' gradients, and changes nothing else."""

    def __call__(self, step: Step) -> Tensor:
        statistics = {n: t.clone() for n, t in step.params.items() if n in step.network.buffers}
        gradients, losses = step.gradient({n: t for n, t in step.params.items() if n != TRACE})
        for name, tensor in statistics.items():
            step.params[name].copy_(tensor)
        squares = [gradient.square().flatten(1).sum(1) for gradient in gradients.values()]
        step.params[TRACE].add_(torch.stack(squares).sum(0).unsqueeze(1))
        return losses


class TraceMean(WeightedMean):
    """The mean of the bodies, weighted by the traces that were sent with them."""

    def add(self, clients: Sequence[int], uploads: Mapping[str, Tensor], weights: Tensor) -> None:
        body = {name: tensor for name, tensor in uploads.items() if name != TRACE}
        traces = exact(uploads[TRACE]).flatten().clamp(min=LEAST)
        super().add(clients, body, weights.to(traces) * traces)


@register
class FedAS(Algorithm):
    """Clients align the received body with their own prototypes, train it with a personal head, and weigh it.

    Source: Yang et al., CVPR 2024; xiyuanyang45/FedAS system/flcore/clients/clientas.py and
    servers/serveras.py. Prototypes are the class means of features under the client's own body of its last
    participation (θ_0 at first). The weight of a client is the sum, over the batches of an epoch after
    training, of the squared norm of the batch's gradient, which it sends. Clients are evaluated with their
    own body and head, as there: nothing is sent after the last round.

    Defaults: one epoch of alignment at rate 0.01 without momentum (written into clientas.py, with batches of
    16; here they have the size of the others). 5 local epochs in system/examples.sh.

    Deviations: every client aligns the body that the server sends. Dropout and batch normalisation are in
    training mode while the trace is summed. Local SGD has momentum (none there).

    Traps: the official server hands out its model itself, and clients align it in place: each participant
    begins from what the ones before it have left. The trace is of batch gradients, not of single samples', so
    that it depends on the batch size. All clients compute it in every round, but only those of participants
    count. The official code reports the best round on test data, of all clients with models as old as their
    last participation, and never shuffles the training data.
    """

    name = "fedas"
    title = "FedAS"
    reference = "Yang et al., CVPR 2024; xiyuanyang45/FedAS"
    group = "decoupled"
    publication = (
        "FedAS: Bridging Inconsistency in Personalized Federated Learning",
        "Yang, Xiyuan and Huang, Wenke and Ye, Mang",
        "CVPR",
        2024,
        "https://github.com/xiyuanyang45/FedAS",
    )
    pseudocode = (
        "align the received body θ with the client's own class means",
        "train θ_k and head h_k; F_k ← squared norms of the batches' gradients",
        "θ ← Σ_k F_k θ_k / Σ_k F_k, h_k stays",
    )
    Hyper = FedASHyper
    too_large = ("align_rate",)
    tuning = ({"align_epochs": 0}, {"align_rate": 0.1})
    averages = False

    def __init__(self, task: RunContext, hyper: FedASHyper) -> None:
        super().__init__(task, hyper)
        self.clients = ClientStore(task.initial, task.data.clients)  # whole models

    def shared_layers(self) -> tuple[str, ...]:
        return self.network.names[:-1]

    def phases(self, round: int) -> list[Phase]:
        hyper, names, (joint,) = self.hyper, self.network.names, super().phases(round)
        aligned = dict.fromkeys(names[:-1], hyper.align_rate)
        phases = [Phase(aligned, hyper.align_epochs, stream="batches-personal", rule=Aligned()), joint]
        return [*phases, Phase(dict.fromkeys((*names, "fisher"), self.config.lr), 1, rule=Fisher())]

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(self.server, first=self.task.initial)

    def closing(self, clients: Sequence[int]) -> Message:
        return Message()  # clients are evaluated with what they keep

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        kept, data, stop = self.clients.gather(clients), self.task.data, len(self.network.layers) - 1
        outputs = self.task.executor.forward(self.network, kept, clients, "train", stop)
        self.meter.charge(sum(map(len, outputs)))
        pairs = [(z.flatten(1), data.labels(k)) for z, k in zip(outputs, clients, strict=True)]
        prototypes = torch.stack([class_means(*pair, data.classes)[0] for pair in pairs])
        trace = torch.zeros(len(clients), 1, device=data.device)
        params = {**kept, **expand(message.common, len(clients)), TRACE: trace}
        model, given = StackedModel(self.network, params), {"client": {"prototypes": prototypes}}
        return LocalCall(round, list(clients), {"model": model}, self.phases(round), constants=given)

    def upload(self, outcome: LocalResult) -> Params:
        return {**super().upload(outcome), TRACE: outcome.models["model"][TRACE]}

    def aggregator(self) -> Aggregator:
        return TraceMean()

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        return [StackedModel(self.network, self.clients.gather(clients))]
