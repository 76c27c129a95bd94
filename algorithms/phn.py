"""pFedHN: a hypernetwork on the server makes each client's model of a vector that stands for the client."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.algorithms.clipping import Clipped
from pfl_benchmark.method import (
    Aggregator,
    Algorithm,
    Between,
    Gathered,
    LocalResult,
    Message,
    Network,
    Params,
    Phase,
    RunConfig,
    RunContext,
    StackedModel,
    UserError,
    add_prefix,
    option,
    register,
    strip_prefix,
)

PHI, VELOCITY = "phi", "velocity"  # the hypernetwork and its momentum
OUT = ("out.weight", "out.bias")  # its last layer, which is most of it


@dataclass(frozen=True)
class PFedHNHyper:
    """Hyper-parameters of pFedHN."""

    embed_dim: int = option(0, "length of a client's vector; 0: 1 + a quarter of the clients", least=0)
    hidden: int = option(100, "width of the hypernetwork", least=1)
    n_hidden: int = option(
        3,
        "hidden layers of the hypernetwork behind its first one",
        least=0,
        most=100,
        search=(1, 2, 3),
    )
    hyper_rate: float = option(0.01, "learning rate of the hypernetwork", least=0, search=Between(0.001, 0.1))
    hyper_momentum: float = option(0.9, "momentum of the hypernetwork", least=0, below=1)
    hyper_decay: float = option(1e-3, "weight decay of the hypernetwork", least=0)
    local_clip: float = option(50.0, "largest norm of the gradient of a local step", least=1e-12)
    clip: float = option(50.0, "largest norm of the hypernetwork's gradient", least=1e-12)


def code_of(phi: Params, client: int) -> Tensor:
    """What the last layer of a hypernetwork φ makes the client's model of [h]."""
    vectors, weight, bias, *more = (tensor for name, tensor in phi.items() if name not in OUT)
    code = F.linear(vectors[client], weight, bias)
    for weight, bias in zip(more[::2], more[1::2], strict=True):
        code = F.linear(F.relu(code), weight, bias)
    return code


@register
class PFedHN(Algorithm):
    """Clients receive the models that the hypernetwork makes for them, train and send back the change.

    Source: Shamsian et al., ICML 2021, Algorithm 1; AvivSham/pFedHN experiments/pfedhn/trainer.py, models.py.

    Defaults: those of trainer.py: width 100, 3 hidden layers, SGD with rate 0.01, momentum 0.9, weight decay
    0.001; gradients, local ones too, cut to norm 50. Local training there is 50 batches of 64 at rate 0.005.

    Deviations: there a step of the hypernetwork follows every single client. Here a round's participants
    train at once, by the common protocol, and one step follows the sum of their gradients, scaled down to a
    cohort's in rounds with everyone; the cut to norm 50 is of that sum. Local momentum is the protocol's,
    without weight decay (there 0.9, 5e-5).

    Traps: the official run has 5000 participations, 100 of each client on average: many more than clients
    have where a tenth of them takes part in a round, and what is a client's own is learned in these. It
    reports the step that is best on validation data.
    """

    name = "phn"
    title = "pFedHN"
    reference = "Shamsian et al., ICML 2021; AvivSham/pFedHN"
    group = "hypernetworks"
    publication = (
        "Personalized Federated Learning using Hypernetworks",
        "Shamsian, Aviv and Navon, Aviv and Fetaya, Ethan and Chechik, Gal",
        "ICML",
        2021,
        "https://arxiv.org/abs/2103.04628",
    )
    pseudocode = (
        "send w_k ← H(e_k; φ), made of the client's embedding e_k",
        "Δ_k ← SGD(w_k) − w_k",
        "(φ, e_k) ← (φ, e_k) + α (∂w_k / ∂(φ, e_k))ᵀ Δ_k",
    )
    aliases = ("pfedhn", "hypernetwork")
    Hyper = PFedHNHyper
    too_large = ("hyper_rate",)
    evaluated = "personal"
    tuning = ({"hyper_rate": 0.003}, {"hyper_rate": 0.03}, {"hyper_rate": 0.1}, {"n_hidden": 1})
    refuses: ClassVar[Mapping[str, str]] = {"weights": "whose models are made by another network"}
    averages = False
    no_newcomers = "whose server has a trained vector for every client"
    learns_little = True  # a step of the server for each participation

    def __init__(self, task: RunContext, hyper: PFedHNHyper) -> None:
        super().__init__(task, hyper)
        rng, like = task.streams.get("init", 1), next(iter(task.initial.values()))  # its round 0 is θ_0
        width = hyper.embed_dim or 1 + task.data.clients // 4
        drawn = {"vectors": rng.standard_normal((task.data.clients, width))}
        for name in (*(f"hidden{number}" for number in range(hyper.n_hidden + 1)), "out"):
            size, bound = task.network.count() if name == "out" else hyper.hidden, width**-0.5
            drawn[f"{name}.weight"] = rng.uniform(-bound, bound, (size, width))  # as PyTorch draws
            drawn[f"{name}.bias"] = rng.uniform(-bound, bound, size)
            width = size
        phi = {name: torch.from_numpy(np.float32(values)).to(like) for name, values in drawn.items()}
        zeros = {name: torch.zeros_like(tensor) for name, tensor in phi.items()}
        self.server = {**add_prefix(PHI, phi), **add_prefix(VELOCITY, zeros)}

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: PFedHNHyper) -> None:
        super().check(config, network, hyper)
        if network.buffers:  # a variance that it makes may be negative
            raise UserError(
                f"'{cls.name}' makes whole networks, and buffers (statistics of batch normalisation) cannot "
                f"be made; choose another --network than {config.network}, such as resnet8-gn"
            )

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(per_client=self._models(clients))

    def closing(self, clients: Sequence[int]) -> Message:
        return Message(per_client=self._models(clients))

    def phases(self, round: int) -> list[Phase]:
        return [replace(phase, rule=Clipped(self.hyper.local_clip)) for phase in super().phases(round)]

    def _models(self, clients: Sequence[int]) -> Params:
        """The clients' models, stacked."""
        shapes, phi = self.network.shapes(), strip_prefix(PHI, self.server)
        flat = torch.stack([F.linear(code_of(phi, k), *(phi[name] for name in OUT)) for k in clients])
        parts = flat.split([math.prod(shape) for shape in shapes.values()], 1)
        return {name: part.reshape(-1, *shapes[name]) for name, part in zip(shapes, parts, strict=True)}

    def upload(self, outcome: LocalResult) -> Params:
        received = self._models(outcome.clients)  # the hypernetwork has not moved since
        return {name: tensor - outcome.models["model"][name] for name, tensor in received.items()}

    def aggregator(self) -> Aggregator:
        return Gathered()

    def aggregate(self, mean: Params) -> None:
        """A step of the hypernetwork along the sum of ``(∂θ/∂φ)ᵀ Δθ`` over the participants.

        Where everyone takes part, as in the last round, the sum is scaled to a cohort's.
        """
        hyper, phi = self.hyper, strip_prefix(PHI, self.server)
        clients, weights = mean[Gathered.CLIENTS].tolist(), mean[Gathered.WEIGHTS]
        flat = torch.cat([mean[name].flatten(1) for name in self.network.shapes()], 1)
        changes = flat * (weights / weights.mean()).to(flat).unsqueeze(1)
        changes = changes * min(1.0, self.task.schedule.cohort_size / len(clients))
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in phi.items() if name not in OUT}
        codes = torch.stack([code_of(leaves, client) for client in clients])
        found = torch.autograd.grad(codes, list(leaves.values()), changes @ phi[OUT[0]])
        found = (*found, changes.T @ codes.detach(), changes.sum(0))
        norm = torch.stack([gradient.norm() for gradient in found]).norm()
        factor = hyper.clip / norm.clamp(min=hyper.clip)
        for (name, tensor), gradient in zip(phi.items(), found, strict=True):
            velocity = hyper.hyper_momentum * self.server[f"{VELOCITY}.{name}"]
            velocity += factor * gradient + hyper.hyper_decay * tensor
            self.server[f"{PHI}.{name}"] = tensor - hyper.hyper_rate * velocity
            self.server[f"{VELOCITY}.{name}"] = velocity

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        return [StackedModel(self.network, self._models(clients))]
