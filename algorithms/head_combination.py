"""Heads combined by a quadratic programme, and what a server needs for it (no method by itself)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pfl_benchmark.algorithms.fedproto import class_means
from pfl_benchmark.method import Algorithm, Gathered, Params

SMALL = 1e-3  # FedPAC tools.py: smaller weights of heads are 0


def of_features(features: Tensor, labels: Tensor, classes: int) -> Params:
    """What FedPAC knows of a client's features [n, d] and labels [n].

    Returns:
        Class means μ [C, d] and counts n_k [C], parts h_k = (n_k / n) μ_k [C, d], and the variance [1] of
        the mean of such parts, v = (mean of ‖z‖² − Σ_k ‖h_k‖²) / n.
    """
    means, counts = class_means(features, labels, classes)[0], torch.bincount(labels, minlength=classes)
    parts = means * counts.unsqueeze(1) / len(labels)
    variance = (features.square().sum(1).mean() - parts.square().sum()) / len(labels)
    return {"means": means, "counts": counts.to(means), "parts": parts, "variance": variance.view(1)}


def statistics(algorithm: Algorithm, params: Params, clients: Sequence[int]) -> Params:
    """`of_features` of the inputs of the last layer, stacked: a pass over training data, which is metered."""
    data, stop = algorithm.task.data, len(algorithm.network.layers) - 1
    outputs = algorithm.task.executor.forward(algorithm.network, params, clients, "train", stop)
    algorithm.meter.charge(sum(map(len, outputs)))
    pairs = zip(outputs, clients, strict=True)
    found = [of_features(z.flatten(1), data.labels(k), data.classes) for z, k in pairs]
    return {name: torch.stack([own[name] for own in found]) for name in found[0]}


def simplex_minimum(matrix: np.ndarray) -> np.ndarray:
    """The α ≥ 0 [m] of sum 1 that minimises ``αᵀ P α`` for a positive semi-definite P [m, m].

    With x the minimum of ``xᵀ P x / 2 − Σ x`` over x ≥ 0, which is a non-negative least squares problem of
    the Cholesky factor of P, α = x / Σ x: the two have the same conditions of Karush, Kuhn and Tucker.
    """
    count, scale = len(matrix), np.trace(matrix) / len(matrix) or 1.0
    from scipy.linalg import cholesky, solve_triangular  # takes its time to load; only some methods need it
    from scipy.optimize import nnls

    lower = cholesky(matrix / scale + 1e-9 * np.eye(count), lower=True)
    x, _ = nnls(lower.T, solve_triangular(lower, np.ones(count), lower=True), maxiter=100 * count)
    return x / x.sum()


def head_weights(variances: Tensor, means: Tensor) -> Tensor:
    """Weights [m, m] of all heads for each client's combined head, from v [m] and h [m, C, d].

    Those of client i minimise ``Σ_j α_j² v_j + ‖Σ_j α_j (h_i − h_j)‖²``; ones below 0.001 become 0.
    """
    flat, v = means.flatten(1).cpu().double().numpy(), variances.cpu().double().numpy()
    rows = []
    for own in flat:
        gaps = own - flat
        weights = simplex_minimum(np.diag(v) + gaps @ gaps.T)
        rows.append(np.where(weights > SMALL, weights, 0))
    found = np.stack(rows)
    return torch.from_numpy(found / found.sum(1, keepdims=True)).to(means)


def common_means(means: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Class means of all clients [C, d], and which exist [C], of theirs [n, C, d] and counts [n, C]."""
    sums = {"sums": means * counts.unsqueeze(2), "counts": counts}
    total, samples = Gathered.mean(sums, torch.ones(len(counts))).values()
    return total / samples.where(samples > 0, torch.ones_like(samples)).unsqueeze(1), samples > 0
