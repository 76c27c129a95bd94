"""FedRoD: a generic head trained on balanced losses, and a personal head on what it leaves."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.method import (
    Algorithm,
    ClientStore,
    LocalCall,
    Message,
    NoHyper,
    Part,
    Phase,
    RunContext,
    StackedModel,
    Step,
    register,
    row,
)

ABSENT = 1e-8  # samples that a class without samples counts for: its logarithm has to be finite


def two_heads(step: Step) -> Tensor:
    """Balanced softmax loss of the generic head, plus cross-entropy of the sum of both heads.

    The first trains body and generic head, the second the personal head alone.
    """
    features = step.apply(stop=-1)
    generic = step.apply(x=features, start=-1)
    balanced = step.cross_entropy(generic + step.constants["client"]["prior"].unsqueeze(1))
    weight, bias = step.params["personal.weight"], step.params["personal.bias"]
    personal = torch.baddbmm(bias.unsqueeze(1), features.detach().flatten(2), weight.transpose(1, 2))
    return balanced + step.cross_entropy(generic.detach() + personal)


@register
class FedRoD(Algorithm):
    """The whole model is averaged; a second last layer stays with each client, and logits are summed.

    Source: Chen and Chao, ICLR 2022, with the linear personal head and the balanced softmax loss (logits plus
    the logarithm of the class's number of samples); hongyouc/Fed-RoD holds no code, so details follow PFLlib
    flcore/clients/clientrod.py: the personal head begins as the generic one of θ_0 and learns on features and
    generic logits that it does not change.

    Defaults: it has no hyper-parameters; rates and epochs are those of the common protocol.

    Deviations: local SGD has momentum (none in PFLlib).

    Traps: PFLlib counts a client's samples of each class without those of its last, short batch, and reports
    the best round on test data.
    """

    name = "fedrod"
    title = "FedRoD"
    reference = "Chen and Chao, ICLR 2022; hongyouc/Fed-RoD (no code), PFLlib clientrod.py"
    group = "decoupled"
    publication = (
        "On Bridging Generic and Personalized Federated Learning for Image Classification",
        "Chen, Hong-You and Chao, Wei-Lun",
        "ICLR",
        2022,
        "https://arxiv.org/abs/2107.00778",
    )
    pseudocode = (
        "(θ_k, g_k) ← SGD on the balanced loss of g(θ(x))",
        "h_k ← SGD on ℓ(g(θ(x)) + h_k(θ(x))), θ and g not changed by it",
        "(θ, g) ← mean of the (θ_k, g_k), h_k stays",
    )
    needs_bias = True

    def __init__(self, task: RunContext, hyper: NoHyper) -> None:
        super().__init__(task, hyper)
        self._last = task.network.names[-1]
        head = {f"personal.{kind}": task.initial[f"{self._last}.{kind}"] for kind in ("weight", "bias")}
        self.clients = ClientStore(head, task.data.clients)

    def phases(self, round: int) -> list[Phase]:
        rates = dict.fromkeys((*self.network.names, "personal"), self.config.lr)
        return [Phase(rates, self.local_work, objective=two_heads)]

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(self.server, first=self.clients.initial)

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        call.models["model"].params.update(self.clients.gather(clients))
        data, classes = self.task.data, len(self.clients.initial["personal.bias"])
        counts = [torch.bincount(data.labels(client), minlength=classes) for client in clients]
        call.constants["client"] = {"prior": torch.stack(counts).float().clamp(min=ABSENT).log()}
        return call

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        params = {**self.assemble(clients, self.server), **self.clients.gather(clients)}
        return [StackedModel(self.network, params)]

    def scores(self, members: Sequence[StackedModel], clients: Sequence[int], part: Part) -> list[Tensor]:
        (member,), last = members, self.network.index(self._last)
        outputs = self.task.executor.forward(self.network, member.params, clients, part, last)
        found = []
        for position, features in enumerate(outputs):
            own = row(member.params, position)
            personal = F.linear(features.flatten(1), own["personal.weight"], own["personal.bias"])
            found.append(self.network.apply(own, features, start=last) + personal)
        return found

    def capacities(self) -> list[tuple[int, int]]:
        return [(self.network.count(), self.network.count([self._last]))]
