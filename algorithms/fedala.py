"""FedALA: clients begin with a learned mixture, weight by weight, of their own head and the global one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.method import (
    Algorithm,
    Between,
    ClientStore,
    LocalCall,
    LocalResult,
    Message,
    Network,
    Params,
    RunConfig,
    RunContext,
    StackedModel,
    UserError,
    add_prefix,
    option,
    register,
    row,
    select,
    strip_prefix,
)

LOCAL, SHARES = "local", "shares"
EVALUATION = 0  # the "round" of the samples drawn in evaluations, so that each evaluation draws the same ones


@dataclass(frozen=True)
class FedALAHyper:
    """Hyper-parameters of FedALA."""

    layers: int = option(1, "last layers p that are mixed; the others are the global ones", least=1)
    part: float = option(
        0.8,
        "part s of the training samples that the mixture is learned on",
        least=1e-6,
        most=1,
        search=Between(0.2, 0.8, log=False),
    )
    eta: float = option(1.0, "learning rate η of the mixture", least=0, search=Between(0.1, 10))
    ala_epochs: int = option(1, "epochs of learning it, in every participation and evaluation", least=0)


@register
class FedALA(Algorithm):
    """The global model is averaged; its last layers are mixed with the client's own before it trains.

    Source: Zhang et al., AAAI 2023, Algorithm 1; TsingZ0/FedALA system/utils/ALA.py, flcore/clients/
    clientALA.py, flcore/servers/serverALA.py. With Δ = global − own, a participant begins at own + W ⊙ Δ
    in the last layers; W starts at 1 and follows W ← clip(W − η ∇ℓ(own + W ⊙ Δ) ⊙ Δ, 0, 1), batch by batch
    on a part of its training samples with all else frozen. Clients are evaluated with such a mixture of
    what they have trained last and the last aggregate.

    Defaults: s = 80 %, p = 1 layer, η = 1 (system/main.py, where ``-p 2`` counts tensors: weight and bias).

    Deviations: A client's first learning of W goes on there until the losses of ten epochs deviate by less
    than 0.1 (0.01 in the paper, says the README), for 11 epochs at least, and takes one epoch later; here it
    always takes `ala_epochs`, so that costs are known in advance. Only participants receive the model and
    learn W, not all clients in every round: with a tenth of them in a round a tenth as often. Samples are
    drawn at random (there a slice of the stored order) and the last short batch is kept. The mean is
    unweighted unless ``--aggregation samples``.

    Traps: `layer_idx` counts tensors, not the paper's layers. The figure that is printed is the best
    round's on test data.
    """

    name = "fedala"
    title = "FedALA"
    reference = "Zhang et al., AAAI 2023; TsingZ0/FedALA"
    group = "ensembles"
    publication = (
        "FedALA: Adaptive Local Aggregation for Personalized Federated Learning",
        "Zhang, Jianqing and Hua, Yang and Wang, Hao and Song, Tao and Xue, Zhengui and Ma, Ruhui "
        "and Guan, Haibing",
        "AAAI",
        2023,
        "https://arxiv.org/abs/2212.01197",
    )
    pseudocode = (
        "learn W_k in [0, 1]: start ← v_k + W_k ⊙ (w − v_k) in the last layers, w in the others",
        "v_k ← SGD(start), which is sent",
        "w ← mean of the v_k",
    )
    Hyper = FedALAHyper
    tuning: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"layers": 2},
        {"layers": 3},
        {"ala_epochs": 11},
        {"eta": 0.1},
        {"part": 0.2},
    )

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: FedALAHyper) -> None:
        if hyper.layers > len(network.names):
            raise UserError(
                f"layers={hyper.layers}: the network has {len(network.names)} layers; give at most that"
            )

    def __init__(self, task: RunContext, hyper: FedALAHyper) -> None:
        super().__init__(task, hyper)
        self._start = len(self.network.names) - hyper.layers
        fixed = self.network.buffers
        self._mixed = [n for n in self.network.keys(self.network.tail(hyper.layers)) if n not in fixed]
        own = select(task.initial, self._mixed)
        ones = {name: torch.ones_like(tensor) for name, tensor in own.items()}
        self.clients = ClientStore({**add_prefix(LOCAL, own), **add_prefix(SHARES, ones)}, task.data.clients)

    def message(self, clients: Sequence[int], round: int) -> Message:
        first = select(self.task.initial, self._mixed)  # what a client mixes before it has trained
        return Message(self.server, first=first)

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call, kept = super().begin(clients, message, round), self.clients.gather(clients)
        params, shares = call.models["model"].params, strip_prefix(SHARES, kept)
        if round > 1:  # in the first round everyone's model is the global one
            mixed, shares = self._aggregated(clients, params, strip_prefix(LOCAL, kept), shares, round)
            params.update(mixed)
        params.update(add_prefix(SHARES, shares))
        return call

    def _aggregated(
        self, clients: Sequence[int], params: Params, own: Params, shares: Params, draw: int
    ) -> tuple[Params, Params]:
        """Adaptive local aggregation: the mixed layers and their W, stacked [m, ...].

        Args:
            params: the global model, stacked.
            draw: number of the draw of samples.
        """
        inputs = self.task.executor.forward(self.network, params, clients, "train", self._start)
        found = []
        for position, (client, x) in enumerate(zip(clients, inputs, strict=True)):
            order = self.task.streams.get("folds", draw, client).permutation(len(x))
            chosen = torch.from_numpy(order[: max(1, int(self.hyper.part * len(x)))]).to(x.device)
            y = self.task.data.labels(client)[chosen]
            common = select(row(params, position), self._mixed)
            found.append(self._learn(x[chosen], y, common, row(own, position), row(shares, position)))
        both = zip(*found, strict=True)
        mixed, learned = ({n: torch.stack([own[n] for own in part]) for n in self._mixed} for part in both)
        return mixed, learned

    def _learn(
        self, x: Tensor, y: Tensor, common: Params, own: Params, shares: Params
    ) -> tuple[Params, Params]:
        """One client's mixture of `common` and `own` layers, and its W."""
        gaps = {name: common[name] - own[name] for name in common}
        self.meter.charge(self.hyper.ala_epochs * len(x))
        for _ in range(self.hyper.ala_epochs):
            for places in torch.arange(len(x), device=x.device).split(self.config.batch_size):
                point = {n: (own[n] + shares[n] * gaps[n]).requires_grad_() for n in common}
                loss = F.cross_entropy(self.network.apply(point, x[places], self._start), y[places])
                slopes = dict(zip(point, torch.autograd.grad(loss, list(point.values())), strict=True))
                shares = {
                    n: (w - self.hyper.eta * slopes[n] * gaps[n]).clamp(0, 1) for n, w in shares.items()
                }
        return {name: own[name] + shares[name] * gaps[name] for name in common}, shares

    def upload(self, outcome: LocalResult) -> Params:
        model = outcome.models["model"]
        shares = add_prefix(SHARES, strip_prefix(SHARES, model))
        outcome.found = {**add_prefix(LOCAL, select(model, self._mixed)), **shares}
        return select(model, self.server)

    def keep(self, outcome: LocalResult) -> None:
        self.clients.scatter(outcome.clients, outcome.found)

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        params, kept = self.assemble(clients, self.server), self.clients.gather(clients)
        mixed, _ = self._aggregated(
            clients, params, strip_prefix(LOCAL, kept), strip_prefix(SHARES, kept), EVALUATION
        )
        return [StackedModel(self.network, {**params, **mixed})]
