"""MOON: FedAvg whose features are drawn to the global model's and away from the client's last model's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    Params,
    Phase,
    RunContext,
    Step,
    add_prefix,
    option,
    register,
    select,
    strip_prefix,
)

PREVIOUS, KNOWN = "previous", "contrast.known"
LEAST = 1e-16  # added to the product of squared norms: features may all be 0
FROZEN = 2  # models that run on every batch besides the one that is trained


@dataclass(frozen=True)
class MOONHyper:
    """Hyper-parameters of MOON."""

    mu: float = option(1.0, "weight μ of the model-contrastive loss", least=0, search=Between(0.1, 10))
    temperature: float = option(
        0.5, "temperature τ of the cosine similarities", least=1e-6, search=Between(0.1, 2)
    )


def cosine(features: Tensor, others: Tensor) -> Tensor:
    """Cosine similarities [m, B] of features [m, B, d]."""
    norms = features.square().sum(2) * others.square().sum(2)
    return (features * others).sum(2) * (norms + LEAST).rsqrt()


@dataclass(frozen=True)
class Contrastive:
    """Cross-entropy and μ times −log softmax of the similarity to the global model's features.

    The similarities are those of the model's features z to the received model's and to the client's previous
    model's, divided by τ; clients without a previous model have cross-entropy alone.
    """

    mu: float
    temperature: float

    def __call__(self, step: Step) -> Tensor:
        features = step.apply(stop=-1)
        received, previous = (
            cosine(features.flatten(2), step.apply(step.constants[name], stop=-1).flatten(2))
            for name in ("received", PREVIOUS)
        )
        contrast = step.mean(F.softplus((previous - received) / self.temperature))
        known = step.constants["client"]["known"].squeeze(1)
        return step.cross_entropy(step.apply(x=features, start=-1)) + self.mu * known * contrast


@register
class MOON(Algorithm):
    """Local features are compared with those of the received model and of the client's previous model.

    Source: Li et al., CVPR 2021, equations 3 and 4; QinbinLi/MOON main.py (`train_net_fedcon`), model.py.

    Defaults: μ = 1 and τ = 0.5, one previous model: the defaults of main.py. The README's command for
    CIFAR-10 has μ = 5, with ten clients that all take part in every round, batches of 64 and momentum 0.9;
    the paper chooses μ among 0.1, 1, 5 and 10.

    Deviations: The features are the inputs of the last layer, as under the official ``--use_project_head 0``
    and in PFLlib; by default main.py puts a projection of two layers before the last one, for all methods.
    The mean is unweighted unless ``--aggregation samples``. Dropout and batch normalisation are in training
    mode in all three models, there in the trained one alone. The passes of the two frozen models count, too.

    Traps: In the first round there is no previous model and nothing is contrasted, as here. With a part of
    the clients in a round, one that takes part later for the first time contrasts with a random model of
    its own, which has never been trained; here it contrasts nothing then.
    """

    name = "moon"
    title = "MOON"
    reference = "Li et al., CVPR 2021; QinbinLi/MOON"
    group = "global"
    publication = (
        "Model-Contrastive Federated Learning",
        "Li, Qinbin and He, Bingsheng and Song, Dawn",
        "CVPR",
        2021,
        "https://arxiv.org/abs/2103.16257",
    )
    pseudocode = (
        "z, z_g, z_p: features under the local, the received and the previous local model",
        "w_k ← SGD on ℓ − μ log(exp(z·z_g/τ) / (exp(z·z_g/τ) + exp(z·z_p/τ)))",
        "w ← mean of the w_k",
    )
    Hyper = MOONHyper
    too_large = ("mu",)
    evaluated = "global"
    learns_little = True  # every sample passes three models: fewer rounds under a cap of compute
    tuning = ({"mu": 0.1}, {"mu": 5.0}, {"mu": 10.0})

    def __init__(self, task: RunContext, hyper: MOONHyper) -> None:
        super().__init__(task, hyper)
        known = torch.zeros(1, device=task.data.device)
        self.clients = ClientStore({**add_prefix(PREVIOUS, task.initial), KNOWN: known}, task.data.clients)

    def phases(self, round: int) -> list[Phase]:
        objective = Contrastive(self.hyper.mu, self.hyper.temperature)
        return [
            replace(phase, objective=objective, constants={"received": self.server}, passes=1 + FROZEN)
            for phase in super().phases(round)
        ]

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call, kept = super().begin(clients, message, round), self.clients.gather(clients)
        call.constants |= {PREVIOUS: strip_prefix(PREVIOUS, kept), "client": {"known": kept[KNOWN]}}
        return call

    def upload(self, outcome: LocalResult) -> Params:
        model = select(outcome.models["model"], self.network.shapes())
        known = torch.ones(len(outcome.clients), 1, device=self.task.data.device)
        outcome.found = {**add_prefix(PREVIOUS, model), KNOWN: known}
        return model

    def keep(self, outcome: LocalResult) -> None:
        self.clients.scatter(outcome.clients, outcome.found)
