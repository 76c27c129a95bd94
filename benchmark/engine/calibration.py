"""How far a method's probabilities can be believed: Brier score and calibration error of all test samples.

Definitions and sources stand in docs/site/protocol.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

BINS = 15
Predicted = tuple[np.ndarray, np.ndarray, float]
"""Of some samples, the confidence in the prediction [n], whether it is right [n], and the sum of squares."""


def predicted(scores: Sequence[Tensor], labels: Sequence[Tensor]) -> Predicted:
    """What the scores need to know of some clients' logits [n, C] and labels [n]."""
    probabilities = torch.softmax(torch.cat([*scores]).double(), 1)
    own = torch.cat([*labels])
    confidence, chosen = probabilities.max(1)
    squares = (probabilities**2).sum() - 2 * probabilities.gather(1, own[:, None]).sum() + len(own)
    return confidence.cpu().numpy(), (chosen == own).cpu().numpy(), float(squares)


def calibration(parts: Sequence[Predicted]) -> dict[str, float]:
    """Brier score, calibration error and its debiased form, of all samples together."""
    confidences, right, squares = zip(*parts, strict=True)
    confidence, correct = np.concatenate(confidences), np.concatenate(right)
    if not np.isfinite(confidence).all():
        return {}  # training diverged, which the engine says
    error, debiased = calibration_error(confidence, correct)
    return {"brier": math.fsum(squares) / len(correct), "ece": error, "ece_debiased": debiased}


def calibration_error(confidence: np.ndarray, correct: np.ndarray, bins: int = BINS) -> tuple[float, float]:
    """Expected calibration error over bins of equal mass, and the debiased one.

    The bias of the first is estimated as in the uncertainty-calibration library of Kumar et al. (NeurIPS
    2019): as if the accuracies of the bins were normal around those found. The mean over draws, taken there,
    is a closed form here, and what comes out below 0 is 0.

    Args:
        confidence: of the predicted class [n].
        correct: whether the prediction is right [n].
        bins: at most; of fewer samples each has a bin.
    """
    order = np.argsort(confidence, kind="stable")
    edges = np.linspace(0, len(order), min(bins, len(order)) + 1).round().astype(int)
    sizes = np.diff(edges)
    gap, spread = np.empty(len(sizes)), np.empty(len(sizes))
    for number, places in enumerate(np.split(order, edges[1:-1])):
        accuracy = correct[places].mean()
        gap[number] = abs(accuracy - confidence[places].mean())
        spread[number] = math.sqrt(accuracy * (1 - accuracy) / len(places))
    error = float((sizes * gap).sum() / len(order))
    expected = np.array([_mean_distance(*pair) for pair in zip(gap, spread, strict=True)])
    return error, max(0.0, 2 * error - float((sizes * expected).sum() / len(order)))


def _mean_distance(mean: float, deviation: float) -> float:
    """E |X| of a normal X."""
    if deviation == 0:
        return abs(mean)
    ratio = mean / (deviation * math.sqrt(2))
    return deviation * math.sqrt(2 / math.pi) * math.exp(-(ratio**2)) + mean * math.erf(ratio)
