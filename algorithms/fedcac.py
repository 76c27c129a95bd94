"""FedCAC: parameters that a client's data move most are shared with clients whose same parameters move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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
    RunContext,
    StackedModel,
    add_prefix,
    exact,
    option,
    register,
    select,
    strip_prefix,
)

OWN, CRITICAL = "collaborators", "critical"


@dataclass(frozen=True)
class FedCACHyper:
    """Hyper-parameters of FedCAC."""

    tau: float = option(
        0.5, "share τ of each tensor's parameters that are critical", least=0, most=1, search=(0.3, 0.5, 0.7)
    )
    beta: int = option(
        100, "round β after which clients share critical parameters with nobody", least=1,
        search=Between(10, 300),
    )  # fmt: skip


def critical(start: Tensor, trained: Tensor, tau: float) -> Tensor:
    """Which parameters of a tensor [m, ...] are critical for each client: the share τ with largest |Δ · w|.

    Parameters with |Δ · w| below the smallest one that is not 0 never are.
    """
    moved = ((trained - start) * trained).abs().flatten(1)
    count = int(tau * moved.shape[1])
    if count == 0:
        return torch.zeros_like(trained, dtype=torch.bool)
    least = moved.topk(count, 1).values[:, -1:]
    return ((moved >= least) & (moved > 0)).view_as(trained)


def overlaps(masks: Tensor) -> Tensor:
    """Overlap of the clients' critical parameters [n, n], of masks [n, parameters]: 1 − ‖a − b‖₁ / 2 ‖a‖₁."""
    own = exact(masks)
    sizes = own.sum(1)
    apart = sizes[:, None] + sizes - 2 * own @ own.T
    return 1 - apart / (2 * sizes[:, None]).clamp(min=1)


def collaborators(overlap: Tensor, progress: float) -> Tensor:
    """Weights [n, n] of the clients whose critical parameters each client takes, with sum 1.

    Those whose overlap is at least the mean over all pairs, plus `progress` times what the largest is above
    it; and itself.
    """
    count = len(overlap)
    itself = torch.eye(count, dtype=torch.bool, device=overlap.device)
    near = itself
    if count > 1:
        others = overlap[~itself]
        threshold = others.mean() + progress * (others.max() - others.mean())
        near = itself | (overlap >= threshold)
    return near.to(overlap) / near.sum(1, keepdim=True)


@register
class FedCAC(Algorithm):
    """A client begins with the average model, its critical parameters with a mean over similar clients.

    Critical is the share τ of each tensor with the largest |Δ · w| in the client's last training; similar are
    participants of the same round whose critical parameters overlap, by a threshold that grows from the mean
    overlap to the largest one in round β.

    Source: Wu et al., ICCV 2023, equations 1 to 5; kxzxvbk/Fling (FLAIR-Community/Fling,
    argzoo/cifar10/cifar10_fedcac_resnet_config.py), PFLlib flcore/servers/servercac.py.

    Defaults: τ = 0.5 and β = 100, Fling's for CIFAR-10 with 300 rounds; for CIFAR-100 it has 0.4 and 170.

    Deviations: with PFLlib the models of similar clients are mixed from the second round on, and after the
    first a client's critical parameters begin at θ_0; here they are mixed from the first round on. Masks
    count with a byte a parameter. Statistics of batch normalisation are those of the average model. The mean
    is unweighted unless ``--aggregation samples``.

    Traps: clients are compared with the participants of one round alone. In round β only pairs with the
    largest overlap are similar, after it nobody.
    """

    name = "fedcac"
    title = "FedCAC"
    reference = "Wu et al., ICCV 2023; FLAIR-Community/Fling"
    group = "clustered"
    publication = (
        "Bold but Cautious: Unlocking the Potential of Personalized Federated Learning through Cautiously "
        "Aggressive Collaboration",
        "Wu, Xinghao and Liu, Xuefeng and Niu, Jianwei and Zhu, Guogang and Tang, Shaojie",
        "ICCV",
        2023,
        "https://arxiv.org/abs/2309.11103",
    )
    pseudocode = (
        "v_k ← SGD from M_k ⊙ u_k + (1 − M_k) ⊙ w; M_k ← the share τ with largest |Δv_k · v_k|",
        "w ← mean of all v_k",
        "u_k ← mean of the v_j whose M_j overlaps with M_k",
    )
    Hyper = FedCACHyper
    averages = False  # its uploads have masks, too
    tuning = ({"tau": 0.3}, {"tau": 0.7}, {"beta": 30}, {"beta": 300})

    def __init__(self, task: RunContext, hyper: FedCACHyper) -> None:
        super().__init__(task, hyper)
        self._trained = self.network.trainable
        initial = select(task.initial, self._trained)
        masks = {name: torch.zeros_like(tensor, dtype=torch.bool) for name, tensor in initial.items()}
        self.clients = ClientStore(
            {**add_prefix(OWN, initial), **add_prefix(CRITICAL, masks)}, task.data.clients
        )
        self._round = 0

    def start_round(self, round: int) -> None:
        self._round = round

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(self.server, per_client=self._own(clients))

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        params, own = call.models["model"].params, strip_prefix(OWN, message.per_client)
        masks = strip_prefix(CRITICAL, self.clients.gather(clients))
        params.update({name: torch.where(masks[name], own[name], params[name]) for name in self._trained})
        return call

    def upload(self, outcome: LocalResult) -> Params:
        model = select(outcome.models["model"], self.network.shapes())
        start = self._start(outcome.clients)
        masks = {name: critical(start[name], model[name], self.hyper.tau) for name in self._trained}
        outcome.found = {**self._own(outcome.clients), **add_prefix(CRITICAL, masks)}
        return {**model, **add_prefix(CRITICAL, masks)}

    def keep(self, outcome: LocalResult) -> None:
        self.clients.scatter(outcome.clients, outcome.found)

    def aggregator(self) -> Aggregator:
        return Gathered()

    def aggregate(self, mean: Params) -> None:
        models, masks = select(mean, self.network.shapes()), strip_prefix(CRITICAL, mean)
        self.server.update(Gathered.mean(models, mean[Gathered.WEIGHTS]))
        overlap = overlaps(torch.cat([mask.flatten(1) for mask in masks.values()], 1))
        weights = collaborators(overlap, self._round / self.hyper.beta)
        own = {
            name: torch.tensordot(weights.to(models[name]), models[name], 1).to(models[name])
            for name in self._trained
        }
        kept = {**add_prefix(OWN, own), **add_prefix(CRITICAL, masks)}
        self.clients.scatter(mean[Gathered.CLIENTS].tolist(), kept)

    def closing(self, clients: Sequence[int]) -> Message:
        return Message(self.server, per_client=self._own(clients))

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        params = self.assemble(clients, self.server)
        return [StackedModel(self.network, {**params, **self._start(clients)})]

    def _own(self, clients: Sequence[int]) -> Params:
        """What the server has mixed for each of these clients, stacked."""
        kept = self.clients.gather(clients)
        return {name: kept[name] for name in kept if name.startswith(f"{OWN}.")}

    def _start(self, clients: Sequence[int]) -> Params:
        """The trainable tensors that these clients begin and are evaluated with, stacked."""
        kept = self.clients.gather(clients)
        own, masks = strip_prefix(OWN, kept), strip_prefix(CRITICAL, kept)
        return {name: torch.where(masks[name], own[name], self.server[name]) for name in self._trained}
