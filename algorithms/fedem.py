"""FedEM: a few common models, mixed by every client with weights of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.method import (
    Algorithm,
    ClientStore,
    Ledger,
    LocalCall,
    LocalResult,
    Message,
    Params,
    Phase,
    RunContext,
    StackedModel,
    add_prefix,
    expand,
    option,
    register,
    select,
    strip_prefix,
    take_part,
)

WEIGHTS = "mixture.weights"


@dataclass(frozen=True)
class FedEMHyper:
    """Hyper-parameters of FedEM."""

    components: int = option(
        3,
        "number M of models that are mixed",
        least=1,
        most=100,
        search=(2, 3, 4),
    )


def responsibilities(weights: Tensor, losses: Tensor) -> Tensor:
    """Shares [M, n] of the components in each sample, for mixture weights [M] and losses [M, n]: the E step.

    q_m(i) is in proportion to π_m exp(−ℓ_m(i)).
    """
    return (weights.log()[:, None] - losses).softmax(0)


@register
class FedEM(Algorithm):
    """Every client's distribution is a mixture of a few that are common; models are learned by EM.

    Source: Marfoq et al., NeurIPS 2021, Algorithm 1; omarfoq/FedEM client.py (`MixtureClient`), learners/.
    A participant finds the share of each received component in each of its training samples (E step), takes
    the mean shares as its weights π_k, and trains every component on all samples, weighted by its shares
    (M step). Each component is averaged; clients keep π_k. Predictions are probabilities mixed by π_k.

    Defaults: Three components (utils/args.py ``--n_learners``), each drawn from a seed of its own; here the
    first is θ_0. One local epoch there. In run_cifar10.sh FedEM has a learning rate of 0.03 and FedAvg 0.01:
    a component's gradients are about π_k times as large as those of a single model.

    Deviations: The mean is that of the participants, unweighted unless ``--aggregation samples``. Local
    epochs are those of all methods. The loss on record is that of the last component. The passes of the E
    step are metered.

    Traps: aggregator.py averages the copies of all clients, also those that were not sampled and still hold
    the last aggregate: with a part of the clients in a round the server moves only that part of the way.
    Clients of the training are evaluated with the π_k of their last E step, made with the components as
    received, not with the last aggregate (as here); only clients held out make another E step first.
    """

    name = "fedem"
    title = "FedEM"
    reference = "Marfoq et al., NeurIPS 2021; omarfoq/FedEM"
    group = "ensembles"
    publication = (
        "Federated Multi-Task Learning under a Mixture of Distributions",
        "Marfoq, Othmane and Neglia, Giovanni and Bellet, Aurélien and Kameni, Laetitia and Vidal, Richard",
        "NeurIPS",
        2021,
        "https://arxiv.org/abs/2108.10252",
    )
    pseudocode = (
        "E step: q_i(m) ∝ π_k(m) exp(−ℓ(w_m; x_i, y_i)),  π_k ← mean of the q_i",
        "M step: w_mk ← SGD on Σ_i q_i(m) ℓ(w_m; x_i, y_i)",
        "w_m ← mean of the w_mk; predict with Σ_m π_k(m) p(y | x, w_m)",
    )
    Hyper = FedEMHyper
    tuning = ({"components": 2}, {"components": 4})
    refuses: ClassVar[Mapping[str, str]] = {"weights": "whose components must differ from the beginning"}
    ensemble_space = "probability"
    learns_little = True  # messages of several models: fewer rounds under a byte budget

    def __init__(self, task: RunContext, hyper: FedEMHyper) -> None:
        super().__init__(task, hyper)
        self.evaluated = "personal" if hyper.components > 1 else "global"
        self._slots = [f"component{number}" for number in range(hyper.components)]
        models = [
            task.network.init(task.streams.get("init", k), task.data.device)
            for k in range(1, hyper.components)
        ]
        self.server = {
            name: tensor
            for slot, model in zip(self._slots, [self.server, *models], strict=True)
            for name, tensor in add_prefix(slot, model).items()
        }
        even = torch.full((hyper.components,), 1 / hyper.components, device=task.data.device)
        self.clients = ClientStore({WEIGHTS: even}, task.data.clients)

    def phases(self, round: int) -> list[Phase]:
        return [
            replace(phase, model=slot) for slot in self._slots for phase in super(FedEM, self).phases(round)
        ]

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        models = {
            s: StackedModel(self.network, expand(strip_prefix(s, message.common), len(clients)))
            for s in self._slots
        }
        losses = [self._losses(clients, model.params) for model in models.values()]
        kept = self.clients.gather(clients)[WEIGHTS]
        shares = [
            responsibilities(weights, torch.stack(own))
            for weights, own in zip(kept, zip(*losses, strict=True), strict=True)
        ]
        models[self._slots[0]].params[WEIGHTS] = torch.stack([own.mean(1) for own in shares])
        weighted = {slot: [own[number] for own in shares] for number, slot in enumerate(self._slots)}
        return LocalCall(round, list(clients), models, self.phases(round), weighted)

    def _losses(self, clients: Sequence[int], params: Params) -> list[Tensor]:
        """The losses of one component on each client's training samples [n]."""
        outputs = self.task.executor.forward(self.network, params, clients, "train")
        self.meter.charge(sum(map(len, outputs)))
        labels = [self.task.data.labels(client) for client in clients]
        return [F.cross_entropy(z, y, reduction="none") for z, y in zip(outputs, labels, strict=True)]

    def upload(self, outcome: LocalResult) -> Params:
        sent: Params = {}
        for slot in self._slots:
            sent |= add_prefix(slot, select(outcome.models[slot], self.network.shapes()))
        return sent

    def keep(self, outcome: LocalResult) -> None:
        self.clients.scatter(outcome.clients, outcome.models[self._slots[0]])

    def admit(self, clients: Sequence[int], epochs: int, ledger: Ledger) -> None:
        """An E step, as in the official code; no component is trained."""
        take_part(self, clients, [], ledger)

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        weights = self.clients.gather(clients)[WEIGHTS]
        return [
            StackedModel(
                self.network, expand(strip_prefix(slot, self.server), len(clients)), weights[:, number]
            )
            for number, slot in enumerate(self._slots)
        ]

    def capacities(self) -> list[tuple[int, int]]:
        return [(self.hyper.components * self.network.count(), 0)]
