"""FedDecomp: weights are sums of a shared part and a client's own of low rank, which learns first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from pfl_benchmark.method import (
    Algorithm,
    ClientStore,
    LocalCall,
    Message,
    Params,
    Phase,
    RunContext,
    StackedModel,
    Step,
    option,
    register,
)

LOW = "low"


@dataclass(frozen=True)
class FedDecompHyper:
    """Hyper-parameters of FedDecomp."""

    conv_rank: float = option(
        0.6, "rank of convolutions, as a share of their output channels", least=0, most=1,
        search=(0.2, 0.4, 0.6, 0.8),
    )  # fmt: skip
    linear_rank: int = option(4, "rank of other matrices", least=1, search=(2, 4, 16, 40))
    low_epochs: int = option(
        2, "first epochs, that train the parts of low rank; the others train the shared ones, one at least",
        least=0, search=(1, 2, 3),
    )  # fmt: skip


def factors(shape: Sequence[int], hyper: FedDecompHyper) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shapes of the two factors B and A of a weight: [rows, rank] and [rank, columns].

    A kernel [O, I, K, K] is a matrix of O K rows and I K columns, of rank K times the share of O.
    """
    kernel = shape[2] if len(shape) > 3 else 1
    rows = shape[0] * kernel
    rank = hyper.linear_rank if len(shape) == 2 else max(int(hyper.conv_rank * shape[0]), 1) * kernel
    return (rows, rank), (rank, math.prod(shape) // rows)


def summed(params: Mapping[str, Tensor]) -> Params:
    """The stacked tensors of a network, to whose weights their parts B A / r of low rank are added."""
    found = {name: tensor for name, tensor in params.items() if not name.startswith(f"{LOW}.")}
    for name, weight in found.items():
        if (up := params.get(f"{LOW}.{name}.b")) is not None:
            kernel = weight.shape[3] if weight.dim() > 4 else 1
            part = (up @ params[f"{LOW}.{name}.a"]).view_as(weight)
            found[name] = weight + part * (kernel / up.shape[2])
    return found


def of_the_sum(step: Step) -> Tensor:
    """Cross-entropy of the network whose weights are the sums."""
    return replace(step, params=summed(step.params)).cross_entropy()


@register
class FedDecomp(Algorithm):
    """Weights are σ + τ: σ is averaged, τ of low rank stays with the client and trains before σ.

    Source: Wu et al., ACM MM 2024; XinghaoWu/FedDecomp src/client.py, loralib/layers.py. τ is B A / r, B
    begins as 0 and A uniform on ±1/√columns, with r the rank of a matrix and the share of the channels of a
    convolution. Biases and normalisations have no part of low rank.

    Defaults: those of the README for CIFAR-10, a share of 0.6 and rank 4; utils/options.py has 0.8 and 40,
    with CIFAR-100. Of 5 epochs 2 train τ in both.

    Deviations: only participants are averaged. With fewer than 3 local epochs σ still trains for one.
    Statistics of batch normalisation are averaged, and those of training τ are among them.

    Traps: the official server averages the models of all clients, whoever has trained, and reports the best
    round on test data. With a large share τ has more parameters than σ.
    """

    name = "feddecomp"
    title = "FedDecomp"
    reference = "Wu et al., ACM MM 2024; XinghaoWu/FedDecomp"
    group = "decoupled"
    publication = (
        "Decoupling General and Personalized Knowledge in Federated Learning via Additive and Low-Rank "
        "Decomposition",
        "Wu, Xinghao and Liu, Xuefeng and Niu, Jianwei and Wang, Haolin and Tang, Shaojie and Zhu, Guogang "
        "and Su, Hao",
        "ACM MM",
        2024,
        "https://arxiv.org/abs/2406.19931",
    )
    pseudocode = (
        "τ_k = B_k A_k / r ← SGD on ℓ(σ + τ_k), σ fixed",
        "σ_k ← SGD on ℓ(σ + τ_k), τ_k fixed",
        "σ ← mean of the σ_k, τ_k stays",
    )
    Hyper = FedDecompHyper
    learns_little = True  # some epochs train parts of low rank alone, which begin at 0
    refuses: ClassVar[Mapping[str, str]] = {
        "local_steps": "of which some train the parts of low rank (low_epochs)"
    }
    tuning = ({"conv_rank": 0.2}, {"linear_rank": 16}, {"low_epochs": 1})

    def __init__(self, task: RunContext, hyper: FedDecompHyper) -> None:
        super().__init__(task, hyper)
        rng, parts = task.streams.get("init low-rank"), {}
        for name in self.network.trainable:
            weight = task.initial[name]
            if weight.dim() > 1:
                up, down = factors(weight.shape, hyper)
                bound = down[1] ** -0.5
                parts[f"{LOW}.{name}.b"] = weight.new_zeros(up)
                parts[f"{LOW}.{name}.a"] = torch.from_numpy(rng.uniform(-bound, bound, down)).to(weight)
        self.clients = ClientStore(parts, task.data.clients)

    def phases(self, round: int) -> list[Phase]:
        epochs, low = self.config.local_epochs, self.hyper.low_epochs
        alone, shared = (Phase.of(layers, self.config.lr, 1) for layers in ([LOW], self.network.names))
        return [
            replace(alone, epochs=low, objective=of_the_sum),
            replace(shared, epochs=max(epochs - low, 1), objective=of_the_sum),
        ]

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(self.server, first=self.clients.initial)

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        call.models["model"].params.update(self.clients.gather(clients))
        return call

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        params = {**self.assemble(clients, self.server), **self.clients.gather(clients)}
        return [StackedModel(self.network, summed(params))]

    def capacities(self) -> list[tuple[int, int]]:
        own = sum(tensor.numel() for tensor in self.clients.initial.values())
        return [(self.network.count(), own)]
