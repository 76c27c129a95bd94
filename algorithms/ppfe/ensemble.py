"""The ensemble of closed stages, from their stored scores: weighted by β, or as the test samples would."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from pfl_benchmark.method import finest, summand

_PARTS = 10  # weights looked through are multiples of a tenth,
_MOST = 1001  # or of a larger part where that is more than so many combinations (from six stages on)


def ensemble_weights(betas: Sequence[Tensor], device: torch.device | None = None) -> Tensor:
    """Weights [K, stages] from the stages' β [K]; clients whose β are all 0 get equal weights.

    On `device`, as precisely as it can.
    """
    stacked = torch.stack(list(betas), dim=1)
    if device is not None:
        stacked = stacked.to(device, finest(device))
    return torch.where((stacked == 0).all(dim=1, keepdim=True), torch.ones_like(stacked), stacked)


def weighted_scores(scores: Sequence[Tensor], weights: Tensor, space: str) -> Tensor:
    """One client's ensemble scores [n, C].

    Args:
        scores: logits of each stage [n, C].
        weights: the client's weights [stages].
        space: what is summed (`engine.evaluate.SPACES`).
    """
    parts = [summand(score, space) for score in scores]
    return torch.stack([weight * part for weight, part in zip(weights, parts, strict=True)]).sum(0)


def best_common_weights(
    scores: Sequence[Sequence[Tensor]], labels: Sequence[Tensor], space: str
) -> tuple[float, Tensor]:
    """The highest accuracy of weights common to all clients, chosen on these labels themselves.

    About what an ensemble of these models could gain if its weights were better; no result of a method, and
    no bound: looked through are non-negative weights on an even grid (tenths for up to five stages).

    Args:
        scores: logits by stage, one tensor [n, C] a client.
        labels: one tensor [n] a client.

    Returns:
        Share of all samples classified correctly, and weights [stages] with sum 1 that reach it.
    """
    models = torch.stack([summand(torch.cat(list(stage)), space) for stage in scores])  # [stages, n, C]
    truth = torch.cat(list(labels))
    best, chosen = -1, torch.empty(0)
    for weights in _simplex(len(models)):
        correct = int((torch.tensordot(weights, models, dims=1).argmax(1) == truth).sum())
        if correct > best:
            best, chosen = correct, weights
    return best / len(truth), chosen


def _simplex(stages: int) -> Iterator[Tensor]:
    """All weights [stages] with sum 1 on an even grid."""
    parts = max(p for p in range(1, _PARTS + 1) if p == 1 or math.comb(p + stages - 1, p) <= _MOST)

    def split(left: int, places: int) -> Iterator[tuple[int, ...]]:
        if places == 1:
            yield (left,)
            return
        for first in range(left, -1, -1):
            yield from ((first, *rest) for rest in split(left - first, places - 1))

    return (torch.tensor(counts) / parts for counts in split(parts, stages))
