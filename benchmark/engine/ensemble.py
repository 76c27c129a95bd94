"""What a prediction is made of: weighted members, summed."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.engine.data import Part
from pfl_benchmark.engine.executors import Executor
from pfl_benchmark.engine.local import StackedModel

SPACES = ("logit", "probability", "vote")  # what the members of an ensemble are summed in


def ensemble_scores(
    executor: Executor, members: Sequence[StackedModel], clients: Sequence[int], part: Part, space: str
) -> list[Tensor]:
    """Weighted sum of the members' logits (or probabilities, or votes), per client [n, C]."""
    sums: list[Tensor] = []
    for member in members:
        outputs = executor.forward(member.network, member.params, clients, part)
        outputs = [summand(output, space) for output in outputs]
        if member.weights is not None:
            outputs = [output * weight for output, weight in zip(outputs, member.weights, strict=True)]
        sums = [a + b for a, b in zip(sums, outputs, strict=True)] if sums else outputs
    return sums


def summand(logits: Tensor, space: str) -> Tensor:
    """What an ensemble sums of one member's logits [n, C]: these, softmax, or 1 for its class and else 0."""
    if space == "vote":
        return F.one_hot(logits.argmax(1), logits.shape[1]).to(logits.dtype)
    return logits.softmax(1) if space == "probability" else logits


def as_logits(scores: Tensor, space: str) -> Tensor:
    """Sums [n, C] of an ensemble as what a cross-entropy takes; sums of 0 or less become very small."""
    return scores if space == "logit" else scores.clamp_min(1e-12).log()
