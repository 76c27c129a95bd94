"""The function Reweight of Algorithm 1: stage weight β and new sample weights ω of one client."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.algorithms.ppfe.hyper import PPFEHyper

SMALLEST_LOSS = 1e-8  # below it a client's largest loss counts as zero


@dataclass(frozen=True)
class Reweighted:
    """Result for one client.

    Attributes:
        epsilon: weighted mean of the normalised loss over the n judged samples, clipped to [1/2n, 1 − 1/2n].
        beta: weight of the stage in the client's ensemble.
        weights: new sample weights [n], sum n.
    """

    epsilon: float
    beta: float
    weights: Tensor


def sample_losses(scores: Tensor, labels: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Losses of a client's samples as (normalised to [0, 1], used in the exponent), both [n], float64.

    Args:
        scores: logits [n, C].
        kind: the hyper-parameter ``rw_loss``. Cross-entropy has no maximum, so the client's own largest
            value stands for the paper's ``max ℓ``.
    """
    if kind == "zero_one":
        errors = (scores.argmax(1) != labels).to(torch.float64)
        return errors, errors
    losses = F.cross_entropy(scores.to(torch.float64), labels, reduction="none")
    largest = losses.max()
    normalised = losses / largest if largest >= SMALLEST_LOSS else torch.zeros_like(losses)
    return normalised, losses if kind == "ce_raw" else normalised


def reweight(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor,
    classes: int,
    hyper: PPFEHyper,
    judged: Tensor | None = None,
) -> Reweighted:
    """Algorithm 1's Reweight in the reading of the specification.

    Args:
        scores: logits of the stage model (or ensemble) on the client's training samples [n, C].
        weights: sample weights so far [n].
        judged: samples that ε and β are measured on, boolean [n]; None stands for all.
    """
    normalised, exponent = sample_losses(scores, labels, hyper.rw_loss)
    weights = weights.to(torch.float64)
    count = len(labels)
    heard = weights if judged is None else weights * judged
    least = 1 / (2 * (count if judged is None else int(judged.sum())))
    epsilon = float((heard * normalised).sum() / heard.sum())
    epsilon = min(max(epsilon, least), 1 - least)
    beta = 0.5 * math.log((1 - epsilon) / epsilon)
    if hyper.samme:
        beta += 0.5 * math.log(classes - 1)
    if not hyper.beta_neg:
        beta = max(0.0, beta)
    step = hyper.rw_sign * beta * (2 if hyper.rw_double else 1) * exponent
    # Normalising takes any common factor away; without this one raw cross-entropy can overflow.
    changed = weights * torch.exp(step - step.max())
    return Reweighted(epsilon, beta, (changed * (count / changed.sum())).to(torch.float32))
