"""FedProto: personal models that share nothing but the mean features of each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from pfl_benchmark.method import (
    Aggregator,
    Algorithm,
    Between,
    LocalResult,
    Message,
    Params,
    Part,
    Phase,
    RunContext,
    StackedModel,
    Step,
    exact,
    option,
    register,
)

FAR = 100.0  # lib/update.py: the distance of classes that are not compared


@dataclass(frozen=True)
class FedProtoHyper:
    """Hyper-parameters of FedProto."""

    lam: float = option(
        1.0, "weight λ of the distance between features and prototypes", least=0, search=Between(0.1, 10)
    )
    predict: str = option(
        "prototypes",
        "what predicts: the nearest prototype among the client's classes, or the model's own last layer",
        choices=("prototypes", "classifier"),
    )


@dataclass(frozen=True)
class Regularised:
    """Cross-entropy plus λ times the mean squared gap between features and their class's prototype."""

    lam: float

    def __call__(self, step: Step) -> Tensor:
        features, server = step.features.flatten(2), step.constants["server"]
        labels = step.y[..., None].expand(-1, -1, features.shape[2])
        gaps = (features - server["prototypes"].gather(1, labels)).square().mean(2)
        return step.cross_entropy() + self.lam * step.mean(gaps * server["known"].gather(1, step.y))


def class_means(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Mean features [C, d] of each class, 0 without samples, and which classes have some [C]."""
    sums = features.new_zeros(classes, features.shape[1]).index_add_(0, labels, features)
    counts = torch.bincount(labels, minlength=classes)
    return sums / counts.clamp(min=1)[:, None], counts > 0


class PrototypeMean(Aggregator):
    """The mean of each class's prototypes over the clients that have the class."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._sums = torch.zeros_like(exact(like))
        self._weights = self._sums.new_zeros(len(like))

    def add(self, clients: Sequence[int], uploads: Mapping[str, Tensor], weights: Tensor) -> None:
        own = uploads["known"].to(self._sums.device) * weights.to(self._sums)[:, None]
        self._sums += (exact(uploads["prototypes"]) * own[..., None]).sum(0)
        self._weights += own.sum(0)

    def value(self) -> Params:
        known = self._weights > 0
        means = self._sums / self._weights.where(known, torch.ones_like(self._weights))[:, None]
        return {"prototypes": means.to(self._like), "known": known.to(self._like.device)}


@register
class FedProto(Algorithm):
    """Clients keep whole models, send the mean features of their classes and receive those of all.

    Source: Tan et al., AAAI 2022, Algorithm 1; yuetan031/FedProto lib/update.py (`update_weights_het`) and
    exps/federated_main.py. As there, prototypes are made of the features seen in the last local epoch, their
    mean over clients is unweighted (the paper weights by samples: ``--aggregation samples`` weights by all of
    a client's), and predictions use the client's own classes.

    Defaults: λ = 1 (lib/options.py, with rate 0.01, momentum 0.5, one epoch, batches of 4). The README's
    command for CIFAR-10 has λ = 0.1 and batches of 32.

    Deviations: not all clients take part in a round: classes of nobody in a round keep their prototype. All C
    rows are sent, also those of absent classes. All clients begin at θ_0, which aligns their features. There
    each begins at a random model of its own, on CIFAR-10 at a ResNet-18 trained on ImageNet, all but its
    first and last layers.

    Traps: the accuracies that the official code prints are running totals over its users, in which
    predictions of the last layer and of prototypes are mixed (`test_inference_new_het_lt`).
    """

    name = "fedproto"
    title = "FedProto"
    reference = "Tan et al., AAAI 2022; yuetan031/FedProto"
    group = "prototypes"
    publication = (
        "FedProto: Federated Prototype Learning across Heterogeneous Clients",
        "Tan, Yue and Long, Guodong and Liu, Lu and Zhou, Tianyi and Lu, Qinghua and Jiang, Jing and "
        "Zhang, Chengqi",
        "AAAI",
        2022,
        "https://arxiv.org/abs/2105.00243",
    )
    pseudocode = (
        "v_k ← SGD on ℓ(v_k) + λ ‖features − C_y‖²",
        "c_ky ← mean features of class y, which alone is sent",
        "C_y ← mean of the c_ky; predict the class of the nearest C_y",
    )
    Hyper = FedProtoHyper
    refuses: ClassVar[Mapping[str, str]] = {
        "local_steps": "whose statistics are those of the features seen in whole epochs"
    }
    too_large = ("lam",)
    tuning = ({"lam": 0.1}, {"lam": 10.0}, {"predict": "classifier"})

    def __init__(self, task: RunContext, hyper: FedProtoHyper) -> None:
        super().__init__(task, hyper)
        self._last = task.network.names[-1]
        weight = task.initial[f"{self._last}.weight"]
        known = torch.zeros(len(weight), dtype=torch.bool, device=weight.device)
        self.server = {"prototypes": torch.zeros_like(weight), "known": known}

    def shared_layers(self) -> tuple[str, ...]:
        return ()

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(self.server)  # clients begin by themselves

    def phases(self, round: int) -> list[Phase]:
        (phase,), given = super().phases(round), {"server": dict(self.server)}
        objective = Regularised(self.hyper.lam)
        return [replace(phase, collect=self._last, objective=objective, constants=given)]

    def upload(self, outcome: LocalResult) -> Params:
        sizes = [self.task.data.train_sizes[client] for client in outcome.clients]
        found = [
            class_means(z[-n:], y[-n:], len(self.server["known"]))
            for (z, y), n in zip(outcome.features, sizes, strict=True)
        ]
        return dict(zip(self.server, map(torch.stack, zip(*found, strict=True)), strict=True))

    def aggregator(self) -> Aggregator:
        return PrototypeMean(self.server["prototypes"])

    def aggregate(self, mean: Params) -> None:
        new, known = mean["prototypes"], mean["known"]
        self.server["prototypes"] = torch.where(known[:, None], new, self.server["prototypes"])
        self.server["known"] = known | self.server["known"]

    def scores(self, members: Sequence[StackedModel], clients: Sequence[int], part: Part) -> list[Tensor]:
        if self.hyper.predict == "classifier":
            return super().scores(members, clients, part)
        (member,), stop = members, self.network.index(self._last)
        outputs = self.task.executor.forward(member.network, member.params, clients, part, stop)
        return [self._closeness(z.flatten(1), k) for z, k in zip(outputs, clients, strict=True)]

    def _closeness(self, features: Tensor, client: int) -> Tensor:
        """The negative mean squared distance [n, C] of features to the prototypes of a client's classes."""
        prototypes, known = self.server["prototypes"], self.server["known"]
        held = torch.bincount(self.task.data.labels(client), minlength=len(known)) > 0
        distances = (features[:, None] - prototypes).square().mean(2)
        return -distances.where(held & known, torch.full_like(distances, FAR))
