"""FedPAC: features aligned to common class means, and a head for each client combined from all heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pfl_benchmark.algorithms.head_combination import common_means, head_weights, statistics
from pfl_benchmark.method import (
    Aggregator,
    Algorithm,
    Between,
    ClientStore,
    Gathered,
    LocalCall,
    LocalResult,
    Message,
    Params,
    Phase,
    RunContext,
    StackedModel,
    Step,
    add_prefix,
    expand,
    option,
    register,
    select,
    strip_prefix,
)


@dataclass(frozen=True)
class FedPACHyper:
    """Hyper-parameters of FedPAC."""

    lam: float = option(
        1.0, "weight λ of the distance between features and class means", least=0, search=Between(0.01, 10)
    )
    head_epochs: int = option(
        1,
        "epochs of the head, before --local-epochs of the body",
        least=0,
        search=(1, 2, 5),
    )
    head_rate: float = option(
        0.1, "learning rate of the head; 0: --lr, as in PFLlib", least=0, search=Between(0.01, 1)
    )


@dataclass(frozen=True)
class Aligned:
    """Cross-entropy plus λ times the mean squared gap between features and their class's target."""

    lam: float

    def __call__(self, step: Step) -> Tensor:
        features = step.apply(stop=-1).flatten(2)
        labels = step.y[..., None].expand_as(features)
        gaps = (features - step.constants["client"]["targets"].gather(1, labels)).square().mean(2)
        return step.cross_entropy(step.apply(x=features, start=-1)) + self.lam * step.mean(gaps)


@register
class FedPAC(Algorithm):
    """The body is averaged and drawn to common class means; the server combines heads for each participant.

    Source: Xu et al., ICLR 2023, Algorithm 1; JianXu95/FedPAC methods/fedpac.py, tools.py, running.py.
    A participant receives body, class means and its combined head, measures its features' statistics (v, h),
    trains head, then body, and sends both with the statistics and its new class means. Clients are evaluated
    with the model that they have trained, as there: combined heads of the last round are not used. Under
    ``--last-round cohort`` one that never took part has θ_0.

    Defaults: λ = 1, one epoch of the head at rate 0.1 and then 5 of the body (options.py, methods/fedpac.py,
    where 0.1 is a constant, for batches of 50). Local rate 0.01, on CIFAR-10 0.02 whatever is asked for;
    weight decay 5e-4.

    Deviations: the quadratic programmes are solved in float64 without cvxpy. A class of nobody in a round
    keeps its mean. The body's mean is unweighted by default. Both passes before training are one.

    Traps: the head's epoch is on top of the local epochs. In float32 a programme may have a negative
    eigenvalue; the official code then drops all below 0.01, and with them most variances. It prints the mean
    of the participants' accuracies after local training, each round; PFLlib's version reports the best one.
    """

    name = "fedpac"
    title = "FedPAC"
    reference = "Xu et al., ICLR 2023; JianXu95/FedPAC"
    group = "prototypes"
    publication = (
        "Personalized Federated Learning with Feature Alignment and Classifier Collaboration",
        "Xu, Jian and Tong, Xinyi and Huang, Shao-Lun",
        "ICLR",
        2023,
        "https://arxiv.org/abs/2306.11867",
    )
    pseudocode = (
        "train h_k, then θ_k on ℓ + λ ‖features − global class means‖²",
        "θ ← mean of the θ_k, class means likewise",
        "send h_k ← Σ_j α_kj h_j, α_k from a quadratic program",
    )
    Hyper = FedPACHyper
    too_large = ("lam", "head_rate")
    tuning = ({"lam": 0.1}, {"lam": 10.0}, {"head_rate": 0.01}, {"head_rate": 0.05})
    averages = False

    def __init__(self, task: RunContext, hyper: FedPACHyper) -> None:
        super().__init__(task, hyper)
        self._body, self._head = map(task.network.keys, (self.shared_layers(), self.personal_layers()))
        weight = task.initial[f"{task.network.names[-1]}.weight"]
        self.server["prototypes"] = torch.zeros_like(weight)
        self.server["known"] = torch.zeros(len(weight), dtype=torch.bool, device=weight.device)
        self._heads = ClientStore(select(task.initial, self._head), task.data.clients)
        self.clients = ClientStore(task.initial, task.data.clients)  # whole models, for evaluation

    def shared_layers(self) -> tuple[str, ...]:
        return self.network.names[:-1]

    def phases(self, round: int) -> list[Phase]:
        hyper, (joint,) = self.hyper, super().phases(round)
        rates = {name: joint.rates[name] for name in self.shared_layers()}
        objective = Aligned(hyper.lam if round > 1 else 0.0)
        head = Phase.of(self.personal_layers(), hyper.head_rate or self.config.lr, hyper.head_epochs)
        return [head, Phase(rates, joint.epochs, objective=objective)]

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(self.server, self._heads.gather(clients))  # which brings new ones the head, too

    def closing(self, clients: Sequence[int]) -> Message:
        return Message()  # clients are evaluated with what they keep

    def assemble(self, clients: Sequence[int], message: Params) -> Params:
        """The received body; nothing that is kept."""
        return expand(select({**self.task.initial, **message}, self.network.shapes()), len(clients))

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call, common = super().begin(clients, message, round), message.common
        params = call.models["model"].params
        found = statistics(self, params, clients)
        params |= add_prefix("sent", select(found, ("parts", "variance")))
        targets = torch.where(common["known"].unsqueeze(1), common["prototypes"], found["means"])
        call.constants["client"] = {"targets": targets}
        return call

    def upload(self, outcome: LocalResult) -> Params:
        model = outcome.models["model"]
        classes = select(statistics(self, model, outcome.clients), ("means", "counts"))
        return {**select(model, self.network.shapes()), **classes, **strip_prefix("sent", model)}

    def aggregator(self) -> Aggregator:
        return Gathered()

    def aggregate(self, mean: Params) -> None:
        weights = head_weights(mean["variance"].flatten(), mean["parts"])
        combined = {name: torch.tensordot(weights, mean[name], 1) for name in self._head}
        self._heads.scatter(mean[Gathered.CLIENTS].tolist(), combined)
        prototypes, known = common_means(mean["means"], mean["counts"])
        self.server["prototypes"] = torch.where(known.unsqueeze(1), prototypes, self.server["prototypes"])
        self.server["known"] = known | self.server["known"]
        self.server |= Gathered.mean(select(mean, self._body), mean[Gathered.WEIGHTS])

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        return [StackedModel(self.network, self.clients.gather(clients))]

    def state(self) -> dict[str, Any]:
        return {**super().state(), "heads": self._heads.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self._heads.load(state["heads"])
