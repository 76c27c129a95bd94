"""GPFL: features guided by class embeddings, through a valve with a generic and a personal side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.method import (
    Algorithm,
    Between,
    LocalCall,
    Message,
    Params,
    Part,
    Phase,
    RunContext,
    StackedModel,
    Step,
    expand,
    option,
    register,
    row,
    select,
)

EMBEDDING = "classes.weight"  # one vector for each class [C, d]
SIDES = ("gamma", "beta")  # of the valve
GUIDES = (EMBEDDING, *(f"{side}.{kind}" for side in SIDES for kind in ("weight", "bias", "gain", "offset")))


@dataclass(frozen=True)
class GPFLHyper:
    """Hyper-parameters of GPFL."""

    lam: float = option(
        0.01, "weight λ of the distance between features and embeddings", least=0, search=Between(0.0001, 1)
    )
    mu: float = option(0.1, "weight decay μ of valve and embeddings", least=0, search=Between(0.001, 1))


def condition(params: Params, side: str, context: Tensor) -> Tensor:
    """What one side of the valve makes of contexts [m, d]: a layer, ReLU and layer normalisation."""
    hidden = torch.einsum("mij,mj->mi", params[f"{side}.weight"], context) + params[f"{side}.bias"]
    return F.layer_norm(hidden.relu(), hidden.shape[1:]) * params[f"{side}.gain"] + params[f"{side}.offset"]


def valve(params: Params, features: Tensor, context: Tensor) -> Tensor:
    """``relu((γ(c) + 1) z + β(c))`` of features z [m, B, d] for contexts c [m, d], one for each client."""
    gamma, beta = (condition(params, side, context).unsqueeze(1) for side in SIDES)
    return F.relu(features * (gamma + 1) + beta)


def contexts(embedding: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """The generic and personal contexts [m, d]: means of embeddings [m, C, d], plain and by shares [m, C]."""
    return embedding.mean(1), torch.einsum("mc,mcd->md", shares, embedding)


@dataclass(frozen=True)
class Guided:
    """Cross-entropies of the head and of cosines with the embeddings, a distance to them, weight decay."""

    hyper: GPFLHyper

    def __call__(self, step: Step) -> Tensor:
        received = step.constants["server"][EMBEDDING]
        generic, personal = contexts(received, step.constants["client"]["shares"])
        features = step.apply(stop=-1).flatten(2)
        guided = valve(step.params, features, generic)
        logits = step.apply(x=valve(step.params, features, personal), start=-1)
        vectors = step.params[EMBEDDING]
        lengths = guided.norm(dim=2, keepdim=True) * vectors.norm(dim=2).unsqueeze(1)
        cosines = guided @ vectors.transpose(1, 2) / (lengths + 1e-12)
        targets = received.gather(1, step.y[..., None].expand_as(guided))
        distance = ((guided - targets) * (step.sample_weights > 0)[..., None]).norm(dim=(1, 2))
        squares = torch.stack([step.params[name].square().flatten(1).sum(1) for name in GUIDES]).sum(0)
        losses = step.cross_entropy(logits) + step.cross_entropy(cosines)
        return losses + self.hyper.lam * distance + self.hyper.mu / 2 * squares


def drawn(head: Tensor, rng: np.random.Generator) -> Params:
    """Valve and embeddings for a head [C, d], drawn as PyTorch's Linear, LayerNorm and Embedding are."""
    found, width = {EMBEDDING: rng.standard_normal(tuple(head.shape))}, head.shape[1]
    bound = width**-0.5
    for side in SIDES:
        found[f"{side}.weight"] = rng.uniform(-bound, bound, (width, width))
        found[f"{side}.bias"] = rng.uniform(-bound, bound, width)
        found |= {f"{side}.gain": np.ones(width), f"{side}.offset": np.zeros(width)}
    return {name: torch.from_numpy(np.float32(values)).to(head) for name, values in found.items()}


@register
class GPFL(Algorithm):
    """Body, valve and class embeddings are averaged; the head stays, and sees features through the valve.

    Source: Zhang et al., ICCV 2023; TsingZ0/GPFL system/flcore/clients/clientgp.py, servers/servergp.py. The
    valve's context is the mean embedding, or on the personal side, which predicts, that of one's samples.

    Defaults: λ = 0.01 and μ = 0.1 of system/run_me.sh for the 4-layer CNN (for ResNet-18 and fastText it has
    λ = 0.0001 and μ = 0; main.py has 0 for both).

    Deviations: contexts are made of the embeddings as received (there of a client's own ones from before it
    replaces them, and 0 in the first round). Local SGD has momentum. The mean is unweighted by default.

    Traps: the distance is the norm over a whole batch, not its square or mean, so that λ depends on the
    batch size, also here. The official code reports the best round on test data, weights clients by samples,
    never shuffles the training data and drops short batches, also of test data.
    """

    name = "gpfl"
    title = "GPFL"
    reference = "Zhang et al., ICCV 2023; TsingZ0/GPFL"
    group = "prototypes"
    publication = (
        "GPFL: Simultaneously Learning Global and Personalized Feature Information for Personalized "
        "Federated Learning",
        "Zhang, Jianqing and Hua, Yang and Wang, Hao and Song, Tao and Xue, Zhengui and Ma, Ruhui "
        "and Cao, Jian and Guan, Haibing",
        "ICCV",
        2023,
        "https://arxiv.org/abs/2308.10279",
    )
    pseudocode = (
        "features f ← θ(x); a valve makes a global f_g and a personal f_p of them",
        "train on ℓ(h_k(f_p)) and on the similarity of f_g to its class embedding",
        "average θ, valve and embeddings; h_k stays",
    )
    Hyper = GPFLHyper
    too_large = ("lam", "mu")
    tuning = ({"mu": 0.0}, {"lam": 0.0001, "mu": 0.0}, {"mu": 1.0})

    def __init__(self, task: RunContext, hyper: GPFLHyper) -> None:
        super().__init__(task, hyper)
        weight = task.initial[f"{task.network.names[-1]}.weight"]
        self.server |= drawn(weight, task.streams.get("init", 1))  # round 0 of this stream is θ_0

    def shared_layers(self) -> tuple[str, ...]:
        return self.network.names[:-1]

    def phases(self, round: int) -> list[Phase]:
        rates = dict.fromkeys((*self.network.names, *SIDES, "classes"), self.config.lr)
        given, objective = {"server": select(self.server, [EMBEDDING])}, Guided(self.hyper)
        return [Phase(rates, self.local_work, objective=objective, constants=given)]

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        call.models["model"].params.update(expand(select(message.common, GUIDES), len(clients)))
        call.constants["client"] = {"shares": self._shares(clients)}
        return call

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        guides = expand(select(self.server, GUIDES), len(clients))
        return [StackedModel(self.network, {**self.assemble(clients, self.server), **guides})]

    def scores(self, members: Sequence[StackedModel], clients: Sequence[int], part: Part) -> list[Tensor]:
        (member,), last = members, len(self.network.layers) - 1
        outputs = self.task.executor.forward(self.network, member.params, clients, part, last)
        _, personal = contexts(member.params[EMBEDDING], self._shares(clients))
        found = []
        for position, features in enumerate(outputs):
            own = {name: tensor[position : position + 1] for name, tensor in member.params.items()}
            passed = valve(own, features.flatten(1).unsqueeze(0), personal[position : position + 1])
            found.append(self.network.apply(row(own, 0), passed.squeeze(0), start=last))
        return found

    def _shares(self, clients: Sequence[int]) -> Tensor:
        """The clients' class frequencies [m, C]."""
        data, classes = self.task.data, len(self.server[EMBEDDING])
        counts = torch.stack([torch.bincount(data.labels(client), minlength=classes) for client in clients])
        return counts / counts.sum(1, keepdim=True)
