"""How far a method's probabilities can be believed: Brier score, calibration error and temperatures.

Definitions and sources stand in docs/site/protocol.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.engine.params import exact

BINS = 15
_HOTTEST = 20.0  # temperatures are between its inverse and it
_HALVINGS = 40  # of the interval of their logarithms


class Predicted(NamedTuple):
    """What the scores need to know of n samples.

    confidence: of the predicted class [n].
    right: whether the prediction is right [n].
    squares, loss: sums of squared distances from the true class and of negative log-likelihoods.
    """

    confidence: np.ndarray
    right: np.ndarray
    squares: float
    loss: float


def predicted(scores: Sequence[Tensor], labels: Sequence[Tensor]) -> Predicted:
    """Of some clients' logits [n, C] and labels [n]."""
    logits = exact(torch.cat([*scores]))
    own = torch.cat([*labels]).to(logits.device)
    probabilities = torch.softmax(logits, 1)
    confidence, chosen = probabilities.max(1)
    squares = (probabilities**2).sum() - 2 * probabilities.gather(1, own[:, None]).sum() + len(own)
    loss = F.cross_entropy(logits, own, reduction="sum")
    return Predicted(confidence.cpu().numpy(), (chosen == own).cpu().numpy(), float(squares), float(loss))


def temperature(scores: Tensor, labels: Tensor) -> float:
    """The divisor of logits [n, C] at which their negative log-likelihood is least, in 1/20 to 20.

    Source: Guo et al., ICML 2017, section 4.2.
    """
    logits = exact(scores)
    own = labels.to(logits.device)
    right = logits.gather(1, own[:, None]).mean()
    low = -math.log(_HOTTEST)
    high = -low
    for _ in range(_HALVINGS):  # convex in 1/T: the slope tells the side
        middle = (low + high) / 2
        expected = (torch.softmax(logits * math.exp(-middle), 1) * logits).sum(1).mean()
        low, high = (low, middle) if expected < right else (middle, high)
    return math.exp((low + high) / 2)


def scaled(parts: Sequence[Predicted]) -> dict[str, float]:
    """As `calibration`, and the loss, of logits that were divided by temperatures."""
    found = calibration(parts)
    if not found:
        return {}
    count = sum(len(part.right) for part in parts)
    found = {"test_loss": math.fsum(part.loss for part in parts) / count, **found}
    return {f"scaled_{name}": value for name, value in found.items()}


def calibration(parts: Sequence[Predicted]) -> dict[str, float]:
    """Brier score, calibration error and its debiased form, of all samples together."""
    confidences, right, squares, _ = zip(*parts, strict=True)
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
