"""FedDBE: FedAvg without the domain bias of features, which a vector of each client keeps instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
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
    Phase,
    RoundKind,
    Rule,
    RunConfig,
    RunContext,
    StackedModel,
    Step,
    UserError,
    option,
    register,
    select,
)

BIAS, RUNNING, MEAN = "bias.vector", "running.mean", "mean"
LEAST_ROUNDS = 2  # the first one exchanges means
WIDTH = 512  # features of the official network


@dataclass(frozen=True)
class FedDBEHyper:
    """Hyper-parameters of FedDBE."""

    kappa: float = option(
        50.0,
        "weight κ of the gap between the mean features and everybody's, for 512 features",
        least=0,
        search=Between(0.5, 500),
    )
    mu: float = option(
        1.0,
        "weight μ of a batch in the running mean of features",
        least=0,
        most=1,
        search=(0.1, 0.5, 1.0),
    )


@dataclass(frozen=True)
class Debiased(Rule):
    """A step on ``ℓ(head(z + bias)) + κ ‖r − g‖² / (2 · 512)`` with r the running mean of the features z.

    ``r ← (1 − μ) r + μ z̄`` before each step, and only z̄, of the batch, has a gradient. Without everybody's
    mean g among the constants the loss is ``ℓ(head(z))``.
    """

    kappa: float
    mu: float

    def __call__(self, step: Step) -> Tensor:
        old, common, found = step.params[RUNNING], step.constants.get("server"), []

        def loss(here: Step) -> Tensor:
            features = here.apply(stop=-1).flatten(2)
            running = (1 - self.mu) * old + self.mu * (features * here.sample_weights.unsqueeze(2)).sum(1)
            found.append(running.detach())
            if common is None:
                return here.cross_entropy(here.apply(x=features, start=-1))
            gaps = (running - common[MEAN]).square().sum(1) / (2 * WIDTH)
            shifted = features + here.params[BIAS].unsqueeze(1)
            return here.cross_entropy(here.apply(x=shifted, start=-1)) + self.kappa * gaps

        trained = {name: step.params[name] for name in step.rates if name != RUNNING}
        gradients, losses = step.gradient(trained, loss)
        step.descend({**gradients, RUNNING: torch.zeros_like(old)})
        old.copy_(found[0])
        return losses


@register
class FedDBE(Algorithm):
    """Clients add a vector of their own to the features, whose mean is drawn to everybody's mean.

    Source: Zhang et al., NeurIPS 2023 ("Eliminating Domain Bias"); TsingZ0/DBE
    system/flcore/clients/clientDBE.py and servers/serverDBE.py. In the first round everyone trains θ_0
    without the method and sends nothing but its running mean of features; their mean, which all receive,
    stays the same to the end.

    Defaults: κ = 50 and μ = 1 of system/run_me.sh for the 4-layer CNN (main.py has 0 and 0.1). With μ = 1
    the running mean is that of the last batch.

    Deviations: the official gap is a mean over the 512 features of its network. Here it is their sum / 512
    for any number of features, so that each is drawn as strongly; with a mean over the 64 features of the
    paper's CIFAR-10 net, κ = 50 made every client's predictions constant. The first exchange counts as a
    round, the first one of the run. Local SGD has momentum, also for the vector (none there), which moves at
    the local rate, as there. It moves when its client takes part: there in every one of up to 2000 rounds.
    Means are unweighted by default. The last batch of an epoch may be short.

    Traps: the official code trains all clients once before the
    rounds that it counts, reports the best round on test data, weights by samples and drops short batches.
    """

    name = "feddbe"
    title = "FedDBE"
    reference = "Zhang et al., NeurIPS 2023; TsingZ0/DBE"
    group = "decoupled"
    publication = (
        "Eliminating Domain Bias for Federated Learning in Representation Space",
        "Zhang, Jianqing and Hua, Yang and Cao, Jian and Wang, Hao and Song, Tao and Xue, Zhengui "
        "and Ma, Ruhui and Guan, Haibing",
        "NeurIPS",
        2023,
        "https://arxiv.org/abs/2311.14975",
    )
    pseudocode = (
        "first round: z̄ ← mean over clients of the mean features",
        "(w_k, z_k) ← SGD on ℓ(head(body(x) + z_k)) + κ ‖mean of body(x) − z̄‖²",
        "w ← mean of the w_k, z_k stays",
    )
    aliases = ("dbe", "domain bias eliminator")
    needs_bias = True
    Hyper = FedDBEHyper
    too_large = ("kappa",)
    least_rounds = LEAST_ROUNDS
    tuning = ({"kappa": 5.0}, {"kappa": 1.0, "mu": 0.1}, {"mu": 0.1})

    def __init__(self, task: RunContext, hyper: FedDBEHyper) -> None:
        super().__init__(task, hyper)
        nothing = torch.zeros_like(task.initial[f"{task.network.names[-1]}.weight"][0])
        self.server[MEAN] = nothing
        self.clients = ClientStore({BIAS: nothing}, task.data.clients)
        self._first = True

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: FedDBEHyper) -> None:
        super().check(config, network, hyper)
        if config.rounds < LEAST_ROUNDS:
            raise UserError(f"--rounds {config.rounds}: the first round exchanges means; give at least 2")

    def start_round(self, round: int) -> None:
        self._first = round == 1

    def kind(self, round: int) -> RoundKind:
        closing = round in (1, self.task.rounds)
        return RoundKind(1, closing, round == 1 or (closing and self.config.everyone_ends))

    def phases(self, round: int) -> list[Phase]:
        beside = ["running"] if round == 1 else ["running", "bias"]
        rates = dict.fromkeys((*self.network.names, *beside), self.config.lr)
        given = {} if round == 1 else {"server": select(self.server, [MEAN])}
        rule = Debiased(self.hyper.kappa, self.hyper.mu)
        return [Phase(rates, self.local_work, rule=rule, constants=given)]

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(select(self.server, self.network.shapes()))

    def closing(self, clients: Sequence[int]) -> Message:
        return Message(select(self.server, [MEAN] if self._first else self.network.shapes()))

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call, kept = super().begin(clients, message, round), self.clients.gather(clients)
        call.models["model"].params.update(kept, **{RUNNING: torch.zeros_like(kept[BIAS])})
        return call

    def upload(self, outcome: LocalResult) -> Params:
        model = outcome.models["model"]
        return {MEAN: model[RUNNING]} if self._first else select(model, self.network.shapes())

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        """The last aggregate; what its head makes of a client's vector is part of the head's bias."""
        params, vectors = self.assemble(clients, self.server), self.clients.gather(clients)[BIAS]
        weight, bias = (f"{self.network.names[-1]}.{kind}" for kind in ("weight", "bias"))
        params[bias] = params[bias] + torch.einsum("mcd,md->mc", params[weight], vectors)
        return [StackedModel(self.network, params)]
