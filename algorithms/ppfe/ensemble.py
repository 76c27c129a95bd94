"""The β-weighted ensemble of closed stages, from their stored scores."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["ensemble_weights", "weighted_scores"]


def ensemble_weights(betas: Sequence[Tensor]) -> Tensor:
    """Weights [K, stages] from the stages' β [K]; clients whose β are all 0 get equal weights."""
    stacked = torch.stack(list(betas), dim=1)
    return torch.where((stacked == 0).all(dim=1, keepdim=True), torch.ones_like(stacked), stacked)


def weighted_scores(scores: Sequence[Tensor], weights: Tensor, space: str) -> Tensor:
    """One client's ensemble scores [n, C].

    Args:
        scores: logits of each stage [n, C].
        weights: the client's weights [stages].
        space: what is summed: ``logit`` or ``probability``.
    """
    parts = [score.softmax(1) if space == "probability" else score for score in scores]
    return torch.stack([weight * part for weight, part in zip(weights, parts, strict=True)]).sum(0)
