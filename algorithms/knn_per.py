"""kNN-Per: FedAvg's model, mixed with the nearest of the client's own samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.method import Algorithm, Between, Part, StackedModel, exact, option, register, row

LEAST = 1e-12  # probability in place of 0, whose logarithm has to be finite


@dataclass(frozen=True)
class KNNPerHyper:
    """Hyper-parameters of kNN-Per."""

    neighbours: int = option(
        10,
        "number k of nearest training samples",
        least=1,
        search=(5, 10, 20),
    )
    weight: float = option(
        0.5,
        "weight λ of their classes in the prediction; the rest is the model's",
        least=0,
        below=1.001,
        search=Between(0.1, 0.9, log=False),
    )


def neighbour_shares(store: Tensor, labels: Tensor, features: Tensor, count: int, classes: int) -> Tensor:
    """Shares [n, C] of the classes among the `count` stored samples [N, d] nearest to features [n, d].

    A neighbour at squared distance s counts exp(−s/d).
    """
    squares = torch.cdist(exact(features), exact(store)).square()
    nearest, places = squares.topk(min(count, len(store)), largest=False)
    weights = (-nearest / store.shape[1]).softmax(1)  # the same shares, also where all are far away
    whose = labels.to(places.device)[places]
    return weights.new_zeros(len(features), classes).scatter_add_(1, whose, weights)


@register
class KNNPer(Algorithm):
    """Trains as FedAvg; predictions mix its probabilities with those of neighbours in its features.

    Source: Marfoq et al., ICML 2022; omarfoq/knn-per client.py (`KNNPerClient`), eval_knnper.py: squared
    distances of the inputs of the last layer divided by their number, the whole training set kept.

    Defaults: k = 10 as in the paper (an argument without default in the official code); kernel scale 1.

    Deviations: one λ for all clients, 0.5 unless set; the publication tunes it for each. The pass over the
    training data is metered. FedAvg's rounds are not shared, as evaluations on the way differ.

    Traps: the official code tells the test score for each λ on a grid.
    """

    name = "knn-per"
    title = "kNN-Per"
    evaluated = "personal"
    reference = "Marfoq et al., ICML 2022; omarfoq/knn-per"
    group = "ensembles"
    publication = (
        "Personalized Federated Learning through Local Memorization",
        "Marfoq, Othmane and Neglia, Giovanni and Kameni, Laetitia and Vidal, Richard",
        "ICML",
        2022,
        "https://arxiv.org/abs/2111.09360",
    )
    pseudocode = (
        "train w as FedAvg",
        "store (features, label) of the client's training samples",
        "predict λ p_kNN(y | x) + (1 − λ) p(y | x, w)",
    )
    Hyper = KNNPerHyper
    tuning = ({"weight": 0.3}, {"weight": 0.7}, {"neighbours": 5})

    def scores(self, members: Sequence[StackedModel], clients: Sequence[int], part: Part) -> list[Tensor]:
        (member,), data = members, self.task.data
        last, weight, found = len(self.network.layers) - 1, self.hyper.weight, []
        stores, inputs = (
            self.task.executor.forward(self.network, member.params, clients, kind, last)
            for kind in ("train", part)
        )
        self.meter.charge(sum(map(len, stores)))
        for position, (client, store, x) in enumerate(zip(clients, stores, inputs, strict=True)):
            logits = self.network.apply(row(member.params, position), x, start=last)
            shares = neighbour_shares(
                store.flatten(1), data.labels(client), x.flatten(1), self.hyper.neighbours, logits.shape[1]
            )
            mixed = weight * shares + (1 - weight) * F.softmax(exact(logits), 1)
            found.append(mixed.clamp_min(LEAST).log().to(logits))
        return found
