"""FedDyn: FedAvg whose clients are regularised so that their optima become those of the mean loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pfl_benchmark.algorithms.clipping import Clipped
from pfl_benchmark.method import (
    Algorithm,
    Between,
    ClientStore,
    LocalCall,
    LocalResult,
    Message,
    Params,
    Phase,
    RunContext,
    StackedModel,
    Step,
    add_prefix,
    clone,
    option,
    register,
    select,
    strip_prefix,
)

DRIFT = "drift"


@dataclass(frozen=True)
class FedDynHyper:
    """Hyper-parameters of FedDyn."""

    alpha: float = option(0.01, "strength α of the dynamic regulariser", least=0, search=Between(0.001, 1))
    clip: float = option(10.0, "largest norm of a step's gradient; 0: any", least=0)
    evaluate: str = option(
        "mean",
        "what is evaluated: the mean of the last local models, or the model that the server goes on with",
        choices=("mean", "server"),
    )


def dynamic(step: Step) -> Tensor:
    """Cross-entropy and α_k (½ ‖w − w_received‖² + ⟨h_k, w⟩)."""
    drift = step.constants[DRIFT]
    products = torch.stack([(drift[n] * step.params[n]).flatten(1).sum(1) for n in drift]).sum(0)
    pull = step.squared_distance(step.constants["received"]) / 2 + products
    return step.cross_entropy() + step.constants["client"]["alpha"].squeeze(1) * pull


@register
class FedDyn(Algorithm):
    """Each client keeps h_k, the sum of its moves; the server adds the mean of all h_k to the local mean.

    Source: Acar et al., ICLR 2021, Algorithm 1, with h_k = −∇L_k / α; alpemreacar/FedDyn utils_methods.py
    (`train_FedDyn`), utils_general.py (`train_feddyn_mdl`). A participant minimises its loss plus α_k (½ ‖w −
    w_received‖² + ⟨h_k, w⟩), then h_k grows by its move; the server's model is the mean of the participants'
    models plus the mean of the h_k of all clients, those that did not take part included. Under
    ``--aggregation samples`` the server's sum of moves is weighted, and is no longer the mean of the h_k.

    Defaults: α = 0.01 (example_cifar_10.py), divided by the client's number of samples in multiples of the
    mean, as there; the paper chooses α among 0.1, 0.01 and 0.001. There all clients take part in every round,
    at rate 0.1: with a part of them, a smaller rate or fewer steps, the sums h_k forget more slowly.
    Gradients are clipped to a norm of 10 (`max_norm` of utils_general.py, there for all methods): without
    that, training diverges on the digits with two classes a client.

    Deviations: Momentum as of all methods here (none there), through which the regulariser goes too. The
    part α_k w of its gradient is clipped with the rest; there it is the optimiser's weight decay. No further
    weight decay unless ``--weight-decay`` (1e-3 there).

    Traps: The curves that example_cifar_10.py draws are neither of the server's model nor of the mean of
    the participants', but of the mean of all clients' last models. After the last round, in which everyone
    takes part here, that is the mean of the local models: what ``evaluate=mean`` evaluates.
    """

    name = "feddyn"
    title = "FedDyn"
    reference = "Acar et al., ICLR 2021; alpemreacar/FedDyn"
    group = "global"
    publication = (
        "Federated Learning Based on Dynamic Regularization",
        "Acar, Durmus Alp Emre and Zhao, Yue and Matas Navarro, Ramon and Mattina, Matthew and "
        "Whatmough, Paul N. and Saligrama, Venkatesh",
        "ICLR",
        2021,
        "https://arxiv.org/abs/2111.04263",
    )
    pseudocode = (
        "w_k ← argmin ℓ(w') + α_k (½ ‖w' − w‖² + ⟨h_k, w'⟩)",
        "h_k ← h_k + w_k − w",
        "w ← mean of the w_k + mean of all h_k",
    )
    Hyper = FedDynHyper
    too_large = ("alpha",)
    evaluated = "global"
    tuning = ({"alpha": 0.001}, {"alpha": 0.1}, {"evaluate": "server"})

    def __init__(self, task: RunContext, hyper: FedDynHyper) -> None:
        super().__init__(task, hyper)
        # Of buffers the server takes the mean: a variance may become negative.
        zeros = {name: torch.zeros_like(self.server[name]) for name in self.network.trainable}
        self.clients = ClientStore(add_prefix(DRIFT, zeros), task.data.clients)
        self._drift, self._mean = zeros, clone(self.server)  # mean h_k of all clients, last mean of models
        self._participants = 0

    def phases(self, round: int) -> list[Phase]:
        (phase,), given = super().phases(round), {"received": self.server}
        rule = Clipped(self.hyper.clip) if self.hyper.clip else None
        return [replace(phase, objective=dynamic, rule=rule, constants=given)]

    def message(self, clients: Sequence[int], round: int) -> Message:
        self._participants = len(clients)
        return super().message(clients, round)

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call, sizes = super().begin(clients, message, round), self.task.data.train_sizes
        mean = sum(sizes) / len(sizes)
        strengths = [[self.hyper.alpha * mean / sizes[client]] for client in clients]
        call.constants[DRIFT] = strip_prefix(DRIFT, self.clients.gather(clients))
        call.constants["client"] = {"alpha": torch.tensor(strengths, device=self.task.data.device)}
        return call

    def upload(self, outcome: LocalResult) -> Params:
        model = select(outcome.models["model"], self.server)
        old = strip_prefix(DRIFT, self.clients.gather(outcome.clients))
        outcome.found = add_prefix(DRIFT, {n: h + model[n] - self.server[n] for n, h in old.items()})
        return model

    def keep(self, outcome: LocalResult) -> None:
        self.clients.scatter(outcome.clients, outcome.found)

    def aggregate(self, mean: Params) -> None:
        share = self._participants / self.task.data.clients
        self._mean = mean
        self._drift = {
            name: old + share * (mean[name] - self.server[name]) for name, old in self._drift.items()
        }
        self.server = {**mean, **{name: mean[name] + drift for name, drift in self._drift.items()}}

    @property
    def _evaluated(self) -> Params:
        return self._mean if self.hyper.evaluate == "mean" else self.server

    def closing(self, clients: Sequence[int]) -> Message:
        return Message(self._evaluated)

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        return [StackedModel(self.network, self.assemble(clients, self._evaluated))]

    def shared_model(self) -> Params | None:
        return {**self._evaluated}

    def state(self) -> dict[str, Any]:
        return {**super().state(), "drift": self._drift, "mean": self._mean}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self._drift, self._mean = dict(state["drift"]), dict(state["mean"])
