"""Floco: the head is a mixture of shared ones; a client trains and uses the mixtures near its own point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pfl_benchmark.method import (
    Aggregator,
    Algorithm,
    ClientStore,
    Gathered,
    LocalCall,
    LocalResult,
    Message,
    Network,
    Params,
    Phase,
    RoundKind,
    RunConfig,
    RunContext,
    StackedModel,
    Step,
    UserError,
    exact,
    option,
    register,
    select,
)

ENDPOINTS, POINT = "simplex.weight", "point.shares"
SCALES, NEAR = 1000, 1e-4  # sizes of the projection that are tried; distances below this count as this


@dataclass(frozen=True)
class FlocoHyper:
    """Hyper-parameters of Floco."""

    endpoints: int = option(10, "heads M that are mixed", least=1, most=1000, search=(5, 10, 20))
    tau: float = option(
        0.5, "share τ of the rounds after which clients get points of their own", least=0, most=1,
        search=(0.1, 0.25, 0.5),
    )  # fmt: skip
    rho: float = option(
        0.1,
        "radius ρ of the mixtures around a client's point that it trains; without effect under tau=1",
        least=0,
        search=(0.01, 0.1, 0.3),
    )


def components(rows: Tensor, count: int) -> Tensor:
    """Principal components [n, count] of centred rows [n, d]; those that there are not are 0.

    The sign is that with which the largest loading of a component is positive.
    """
    centred = rows - rows.mean(0)
    left, sizes, right = torch.linalg.svd(centred, full_matrices=False)
    largest = right.gather(1, right.abs().argmax(1, keepdim=True)).squeeze(1)
    found = (left * sizes * torch.where(largest < 0, -1.0, 1.0))[:, :count]
    return torch.nn.functional.pad(found, (0, count - found.shape[1]))


def projected(rows: Tensor, size: float) -> Tensor:
    """The nearest points [n, M] to rows [n, M] whose entries are at least 0 with sum `size`, as shares."""
    ordered = rows.sort(1, descending=True).values
    over = ordered.cumsum(1) - size
    places = torch.arange(1, rows.shape[1] + 1, device=rows.device)
    held = (ordered - over / places > 0).sum(1, keepdim=True)
    points = (rows - over.gather(1, held - 1) / held).clamp(min=0)
    return points / points.sum(1, keepdim=True)


def spread(rows: Tensor) -> Tensor:
    """Projections of rows [n, M] at the size where they are farthest apart: Σ 1 / d² over pairs is least."""
    best, least = projected(rows, 1.0), math.inf
    if len(rows) < 2:
        return torch.full_like(rows, 1 / rows.shape[1])
    for size in torch.linspace(1e-4, 1, SCALES, dtype=torch.float64).tolist():
        points = projected(rows, size)
        energy = float(torch.pdist(points).clamp(min=NEAR).square().reciprocal().sum())
        if energy < least:
            best, least = points, energy
    return best


def mixed(params: Params, shares: Tensor) -> Tensor:
    """Heads [m, C, d]: mixtures of the endpoints [m, M, C, d] with shares [m, M]."""
    return torch.einsum("me,mecd->mcd", shares, params[ENDPOINTS])


@dataclass(frozen=True)
class Anywhere:
    """Cross-entropy of a mixture drawn uniformly from all there are, a new one in every step."""

    head: str

    def shares(self, step: Step) -> Tensor:
        drawn = (-torch.log1p(-step.uniform("shares")[:, 0, 1:])).clamp(min=1e-12)
        return drawn / drawn.sum(1, keepdim=True)

    def __call__(self, step: Step) -> Tensor:
        head = mixed(step.params, self.shares(step))
        return replace(step, params={**step.params, self.head: head}).cross_entropy()


@dataclass(frozen=True)
class Around(Anywhere):
    """Likewise, of a mixture at most ρ away from the client's point, as sums of differences."""

    rho: float

    def shares(self, step: Step) -> Tensor:
        drawn = step.uniform("shares")[:, 0]
        ways = 2 * drawn[:, 1:] - 1
        ways = ways / ways.abs().sum(1, keepdim=True).clamp(min=1e-12)
        return step.params[POINT] + self.rho * drawn[:, :1] * ways


def turn_of(tau: float, rounds: int) -> int:
    """The round in which everybody takes part and gets a point."""
    return max(round(tau * rounds), 1)


@register
class Floco(Algorithm):
    """M heads are averaged; each step trains a mixture of them, at last near a point of the client's own.

    In round τ everybody takes part, and a client's point is where the principal components of the clients'
    trained heads fall on the simplex of mixtures, at the size that keeps points farthest apart. Clients are
    evaluated with the mixture at their point, before that with the mean of the heads.

    Source: Grinwald et al., NeurIPS 2024; dennis-grinwald/floco src/server/floco.py, src/client/floco.py,
    FL-bench src/server/floco.py, adap/flower baselines/floco.

    Defaults: M = 10 and ρ = 0.1, as in FL-bench (whose τ is round 10) and in Flower's README (ρ = 0.3 for
    Dirichlet splits), and τ half of the rounds, as there and in dennis-grinwald/floco (250 of 500), which has
    M = 20 and ρ = 0.01 in config.

    Deviations: the training of everybody that gives the points is also that of round τ and is averaged; there
    it comes on top of it, and is not. With fewer clients than endpoints missing components are 0, where there
    is an error. The mean is unweighted unless ``--aggregation samples``. Floco+, which adds a personal model
    as in Ditto, is left out.

    Traps: mixtures near a client's point may have negative shares. FL-bench's Floco+ pulls by λ v − w where
    Flower has λ (v − w).
    """

    name = "floco"
    title = "Floco"
    reference = "Grinwald et al., NeurIPS 2024; dennis-grinwald/floco"
    group = "ensembles"
    publication = (
        "Federated Learning over Connected Modes",
        "Grinwald, Dennis and Wiesner, Philipp and Nakajima, Shinichi",
        "NeurIPS",
        2024,
        "https://arxiv.org/abs/2403.03333",
    )
    pseudocode = (
        "(θ_k, h_k1 … h_kM) ← SGD on ℓ(Σ_i α_i h_ki(θ_k(x))), α drawn near α_k, before τ anywhere",
        "(θ, h_1 … h_M) ← mean of the (θ_k, h_k1 … h_kM)",
        "in round τ: α_k ← the principal components of (h_k1 … h_kM), projected on the simplex",
    )
    Hyper = FlocoHyper
    evaluated = "personal"
    keeps_trained = False  # but a point, which comes from the server
    tuning = ({"endpoints": 5}, {"tau": 0.25}, {"rho": 0.3})

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: FlocoHyper) -> None:
        if not config.everyone_ends and turn_of(hyper.tau, config.rounds) == config.rounds:
            raise UserError(
                f"tau={hyper.tau:g}: clients get their points in the last of {config.rounds} rounds, from "
                "everybody's heads, and --last-round is cohort; give a smaller tau or more --rounds"
            )
        last = network.names[-1]
        if len(network.shapes().get(f"{last}.weight", ())) != 2:
            raise UserError(
                f"'{cls.name}' mixes weights of the last layer, and '{last}' of --network {config.network} "
                "is not fully connected; choose another --algo or --network"
            )

    def __init__(self, task: RunContext, hyper: FlocoHyper) -> None:
        super().__init__(task, hyper)
        weight, rng = task.initial[self._head], task.streams.get("init endpoints")
        scale = (2 / sum(weight.shape)) ** 0.5  # Xavier's
        drawn = rng.normal(0, scale, (hyper.endpoints, *weight.shape))
        self.server[ENDPOINTS] = torch.from_numpy(drawn).to(weight)
        centre = weight.new_full((hyper.endpoints,), 1 / hyper.endpoints)
        self.clients = ClientStore({POINT: centre}, task.data.clients)
        self._turn = turn_of(hyper.tau, task.rounds)
        if not self.config.everyone_ends:  # whatever a budget allows, the points come before the last round
            self.least_rounds = next(n for n in itertools.count(2) if turn_of(hyper.tau, n) < n)
        self._round = 0

    @property
    def _head(self) -> str:
        return f"{self.network.names[-1]}.weight"

    def shared_tensors(self) -> list[str]:
        return [name for name in self.network.shapes() if name != self._head]

    def kind(self, round: int) -> RoundKind:
        kind = super().kind(round)
        return replace(kind, full_participation=kind.full_participation or round == self._turn)

    def start_round(self, round: int) -> None:
        self._round = round

    def phases(self, round: int) -> list[Phase]:
        rates = dict.fromkeys((*self.network.names, "simplex"), self.config.lr)
        objective = Anywhere(self._head) if round <= self._turn else Around(self._head, self.hyper.rho)
        drawn = {"shares": (self.hyper.endpoints + 1,)}
        return [Phase(rates, self.local_work, objective=objective, uniform=drawn)]

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(self.server, per_client=self.clients.gather(clients))

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        own = {ENDPOINTS: message.common[ENDPOINTS].expand(len(clients), *self.server[ENDPOINTS].shape)}
        call.models["model"].params.update({**own, **self.clients.gather(clients)})
        return call

    def keep(self, outcome: LocalResult) -> None:
        """Nothing: a client's point comes from the server."""

    def aggregator(self) -> Aggregator:
        return Gathered() if self._round == self._turn else super().aggregator()

    def aggregate(self, mean: Params) -> None:
        if self._round == self._turn:
            heads = exact(mean[ENDPOINTS].flatten(1))
            points = spread(components(heads, self.hyper.endpoints)).to(mean[ENDPOINTS])
            self.clients.scatter(mean[Gathered.CLIENTS].tolist(), {POINT: points})
            mean = Gathered.mean(select(mean, self.server), mean[Gathered.WEIGHTS])
        super().aggregate(mean)

    def closing(self, clients: Sequence[int]) -> Message:
        return Message(self.server, per_client=self.clients.gather(clients))

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        ends = {ENDPOINTS: self.server[ENDPOINTS].expand(len(clients), *self.server[ENDPOINTS].shape)}
        head = mixed(ends, self.clients.gather(clients)[POINT])
        return [StackedModel(self.network, {**self.assemble(clients, self.server), self._head: head})]

    def capacities(self) -> list[tuple[int, int]]:
        return [(sum(tensor.numel() for tensor in self.server.values()), self.hyper.endpoints)]
