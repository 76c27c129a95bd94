"""What PPFE puts on record about its stages: error, weights, edge, accuracy alone and in the ensemble."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pfl_benchmark.algorithms.ppfe.ensemble import best_common_weights, ensemble_weights, weighted_scores
from pfl_benchmark.algorithms.ppfe.reweight import Reweighted

_PER_CLIENT = ("betas", "epsilons", "edges", "smallest", "largest", "effective")


@dataclass
class StageRecord:
    """One closed stage.

    Attributes:
        scores: logits of the stage model by part (train, test), one tensor [n, C] a client.
        betas, epsilons: of Reweight [K].
        edges: γ = ½ − 0/1 error under the weights the stage was trained with [K] (paper, section 5.2).
        smallest, largest, effective: smallest and largest new sample weight, and the effective sample size
            (Σω)²/Σω² [K].
    """

    scores: dict[str, list[Tensor]]
    betas: Tensor
    epsilons: Tensor
    edges: Tensor
    smallest: Tensor
    largest: Tensor
    effective: Tensor

    @classmethod
    def empty(cls, clients: int) -> StageRecord:
        values = {name: torch.zeros(clients, dtype=torch.float64) for name in _PER_CLIENT}
        return cls(scores={"train": [], "test": []}, **values)

    def measure(self, client: int, result: Reweighted, weights: Tensor, labels: Tensor) -> None:
        """Enter a client's figures; `weights` are those the stage was trained with."""
        wrong = self.scores["train"][client].argmax(1) != labels
        self.epsilons[client] = result.epsilon
        self.edges[client] = 0.5 - float((weights * wrong).sum() / weights.sum())
        self.smallest[client], self.largest[client] = result.weights.min(), result.weights.max()
        self.effective[client] = result.weights.sum() ** 2 / (result.weights**2).sum()

    def state(self) -> dict[str, Any]:
        return {"scores": self.scores, **{name: getattr(self, name) for name in _PER_CLIENT}}

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> StageRecord:
        scores = {part: [t.cpu() for t in tensors] for part, tensors in state["scores"].items()}
        return cls(scores=scores, **{name: state[name].cpu() for name in _PER_CLIENT})


def describe(
    records: Sequence[StageRecord],
    plan: Sequence[tuple[int, int, int, list[str]]],
    labels: Mapping[str, Sequence[Tensor]],
    space: str,
) -> dict[str, Any]:
    """The diagnostics of a run as JSON values, per stage.

    The paper's section 5.2 bounds the ensemble's training error by exp(−2γ²T) if every stage has the edge γ;
    per client γ is the smallest edge so far, and the bound is 1 (says nothing) where that is not positive.
    ``hindsight`` is what the test samples themselves would choose as weights for all clients.

    Args:
        plan: number, first round, last round and personal layers of each stage.
        labels: labels of all clients by part.
    """
    stages = []
    for count, (number, first, last, personal) in enumerate(plan[: len(records)], start=1):
        record = records[count - 1]
        smallest_edge = torch.stack([r.edges for r in records[:count]]).min(dim=0).values.clamp_min(0)
        alone = torch.ones(len(record.betas), 1)
        together = ensemble_weights([r.betas for r in records[:count]])
        accuracies = {
            f"{kind}_{part}_accuracy": _accuracy(chosen, weights, labels[part], part, space)
            for kind, chosen, weights in (("stage", [record], alone), ("ensemble", records[:count], together))
            for part in ("train", "test")
        }
        tests = [r.scores["test"] for r in records[:count]]
        hindsight, common = best_common_weights(tests, labels["test"], space)
        stages.append(
            {
                "stage": number,
                "rounds": [first, last],
                "personal": personal,
                **accuracies,
                "hindsight_test_accuracy": round(hindsight, 6),
                "error_bound": _mean(torch.exp(-2 * smallest_edge**2 * count)),
                "hindsight_weights": _rounded(common),
                "clients": {
                    "epsilon": _rounded(record.epsilons),
                    "beta": _rounded(record.betas),
                    "edge": _rounded(record.edges),
                    "weight_min": _rounded(record.smallest),
                    "weight_max": _rounded(record.largest),
                    "effective_samples": _rounded(record.effective),
                },
            }
        )
    return {"stages": stages}


def _accuracy(
    records: Sequence[StageRecord], weights: Tensor, labels: Sequence[Tensor], part: str, space: str
) -> float:
    """Share of all samples that the records, weighted [K, stages], classify correctly together."""
    correct = 0
    for client, own in enumerate(labels):
        scores = [record.scores[part][client] for record in records]
        correct += int((weighted_scores(scores, weights[client], space).argmax(1) == own).sum())
    return round(correct / sum(len(own) for own in labels), 6)


def _mean(values: Tensor) -> float:
    return round(float(values.mean()), 6)


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 6) if math.isfinite(value) else 0.0 for value in values.tolist()]
