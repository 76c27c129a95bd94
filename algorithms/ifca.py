"""IFCA: a few models, each for the clients that it fits best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.method import (
    Aggregator,
    Algorithm,
    LocalCall,
    LocalResult,
    Message,
    Params,
    RunContext,
    StackedModel,
    WeightedMean,
    add_prefix,
    expand,
    option,
    register,
    strip_prefix,
)

CHOICE = "cluster.index"


@dataclass(frozen=True)
class IFCAHyper:
    """Hyper-parameters of IFCA."""

    clusters: int = option(
        2,
        "number of models",
        least=1,
        most=100,
        search=(2, 3, 4, 5),
    )


class ClusterMeans(Aggregator):
    """A mean for each cluster; none for those that nobody has chosen."""

    def __init__(self, clusters: int) -> None:
        self._means = [WeightedMean() for _ in range(clusters)]

    def add(self, clients: Sequence[int], uploads: Mapping[str, Tensor], weights: Tensor) -> None:
        chosen = uploads[CHOICE].flatten().long()
        for number, mean in enumerate(self._means):
            rows = (chosen == number).nonzero().flatten()
            own = {name: tensor[rows] for name, tensor in uploads.items() if name != CHOICE}
            if len(rows):
                mean.add([clients[row] for row in rows.tolist()], own, weights[rows.cpu()])

    def value(self) -> Params:
        found: Params = {}
        for number, mean in enumerate(self._means):
            found |= add_prefix(str(number), mean.value())
        return found


@register
class IFCA(Algorithm):
    """All models are sent; each participant trains the one with the least loss on its training data.

    Source: Ghosh et al., NeurIPS 2020, Algorithm 1 with model averaging; jichan3751/ifca
    cifar/train_cluster_cifar_tf.py. The first model is θ_0, the others are drawn like it.

    Defaults: 2 models (cifar/config.json; the code knows 1, 2 and 4).

    Deviations: the first draw of the models counts. Clients are evaluated with the model that fits their
    training data; passes for the choice are metered. Choices are made on the images as they are (there
    augmented), and the rate does not decay (there by 1 % a round).

    Traps: the official code draws the models again until each has 35 % of the participants (of four: 10 %).
    Its test clients choose the model that has the least loss on the test data itself.
    """

    name = "ifca"
    title = "IFCA"
    reference = "Ghosh et al., NeurIPS 2020; jichan3751/ifca"
    group = "clustered"
    publication = (
        "An Efficient Framework for Clustered Federated Learning",
        "Ghosh, Avishek and Chung, Jichan and Yin, Dong and Ramchandran, Kannan",
        "NeurIPS",
        2020,
        "https://arxiv.org/abs/2006.04088",
    )
    pseudocode = (
        "send all models w_1 … w_J",
        "j ← the one with the least loss on client k,  w_k ← SGD(w_j)",
        "w_j ← mean over the clients that chose j",
    )
    Hyper = IFCAHyper
    tuning = ({"clusters": 3}, {"clusters": 4})
    refuses: ClassVar[Mapping[str, str]] = {"weights": "whose models must differ from the beginning"}
    averages = False
    learns_little = True  # messages of several models: fewer rounds under a byte budget

    def __init__(self, task: RunContext, hyper: IFCAHyper) -> None:
        super().__init__(task, hyper)
        self._chosen: dict[int, int] = {}
        self.evaluated = "personal" if hyper.clusters > 1 else "global"
        models = [self.server]
        for number in range(1, hyper.clusters):
            models.append(task.network.init(task.streams.get("init", number), task.data.device))
        self.server = {
            k: t for number, own in enumerate(models) for k, t in add_prefix(str(number), own).items()
        }

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        params, chosen = self._fitting(clients, message.common)
        model = StackedModel(self.network, {**params, CHOICE: chosen.float().unsqueeze(1)})
        return LocalCall(round, list(clients), {"model": model}, self.phases(round))

    def _fitting(self, clients: Sequence[int], models: Params) -> tuple[Params, Tensor]:
        """The clients' models, stacked, and their numbers [m]: those of least loss on the training data."""
        groups = [strip_prefix(str(number), models) for number in range(self.hyper.clusters)]
        losses = torch.stack([self._losses(clients, group) for group in groups])
        chosen = losses.argmin(0)
        params = {name: torch.stack([group[name] for group in groups])[chosen] for name in groups[0]}
        return params, chosen

    def _losses(self, clients: Sequence[int], model: Params) -> Tensor:
        """The mean loss [m] of one model on each client's training data."""
        data, stacked = self.task.data, expand(model, len(clients))
        outputs = self.task.executor.forward(self.network, stacked, clients, "train")
        self.meter.charge(sum(map(len, outputs)))
        return torch.stack(
            [F.cross_entropy(out, data.labels(k)) for out, k in zip(outputs, clients, strict=True)]
        )

    def upload(self, outcome: LocalResult) -> Params:
        return outcome.models["model"]

    def aggregator(self) -> Aggregator:
        return ClusterMeans(self.hyper.clusters)

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        params, chosen = self._fitting(clients, self.server)
        self._chosen.update(zip(clients, chosen.tolist(), strict=True))
        return [StackedModel(self.network, params)]

    def diagnostics(self) -> dict[str, Any]:
        """The cluster of each client in the last evaluation."""
        return {"clusters": [self._chosen[client] for client in sorted(self._chosen)]}

    def capacities(self) -> list[tuple[int, int]]:
        return [(self.hyper.clusters * self.network.count(), 0)]
