"""Prototypes: clients send the sums of their features by class, and pull features to the mean of all."""

from dataclasses import replace

import torch
from torch import Tensor

from pfl_benchmark.method import Algorithm, LocalResult, Params, Phase, RunContext, Step, register


def pull(step: Step) -> Tensor:
    """Cross-entropy plus the squared distance of features to the prototype of their class."""
    features, given = step.features.flatten(2), step.constants["server"]
    labels = step.y[..., None].expand(-1, -1, features.shape[2])
    gaps = (features - given["prototypes"].gather(1, labels)).square().mean(2)
    return step.cross_entropy() + step.mean(gaps * given["known"].gather(1, step.y))


@register
class Pulled(Algorithm):
    """FedAvg with common prototypes of the classes.

    Source: an example of docs/site/extend/method.md.
    """

    name = "pulled"
    title = "Pulled"
    reference = "an example of docs/site/extend/method.md"
    averages = False  # equal models with other features move the prototypes

    def __init__(self, task: RunContext, hyper: object) -> None:
        super().__init__(task, hyper)
        head = task.initial[f"{task.network.names[-1]}.weight"]  # [classes, features]
        self.server |= {"prototypes": torch.zeros_like(head), "known": torch.zeros_like(head[:, 0])}

    def phases(self, round: int) -> list[Phase]:
        (phase,), given = super().phases(round), {name: self.server[name] for name in ("prototypes", "known")}
        return [replace(phase, collect=self.network.names[-1], objective=pull, constants={"server": given})]

    def upload(self, outcome: LocalResult) -> Params:
        sums = self.server["prototypes"].new_zeros(len(outcome.clients), *self.server["prototypes"].shape)
        for total, (features, labels) in zip(sums, outcome.features, strict=True):
            total.index_add_(0, labels, features)
        counts = [torch.bincount(labels, minlength=sums.shape[1]) for _, labels in outcome.features]
        sent = {name: outcome.models["model"][name] for name in self.network.shapes()}
        return {**sent, "sums": sums, "counts": torch.stack(counts).to(sums)}

    def aggregate(self, mean: Params) -> None:
        counts = mean.pop("counts")
        means = mean.pop("sums") / counts.clamp(min=1e-12)[:, None]
        self.server["prototypes"] = torch.where(counts[:, None] > 0, means, self.server["prototypes"])
        self.server["known"] = torch.maximum((counts > 0).to(counts), self.server["known"])
        self.server.update(mean)
