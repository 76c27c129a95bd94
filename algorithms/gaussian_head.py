"""The mathematics of pFedFDA's generative head (no method by itself).

Every class is a Gaussian of the features; all classes of a client share one covariance, so the Bayes rule
is linear and can stand in for the network's last layer. Nothing here knows clients, rounds or networks.
All values are float64 on the CPU: in float32 the scatter of a few thousand 128-dimensional features loses
the small directions that the head divides by. Whether a GPU would be faster has not been measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

EPSILON = 1e-4  # of the prior, of the regularised covariance, and of the head's shrinkage to a sphere
START = (0.5, 0.5)  # coefficients the search starts from

# Value and gradient [2] of a loss J(b) at the coefficients b = (b_μ, b_Σ).
Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


class Gaussians(NamedTuple):
    """Class means [C, d] and the one covariance [d, d] they share."""

    means: Tensor
    covariance: Tensor


def class_prior(labels: Tensor, classes: int) -> Tensor:
    """Frequencies π [C] of the classes in `labels` [n], all positive, sum 1."""
    prior = torch.bincount(labels, minlength=classes).double() / len(labels) + EPSILON
    return prior / prior.sum()


def sphered(covariance: Tensor) -> Tensor:
    """``Σ_ε = (1−ε) Σ + ε (tr Σ / d) I``: what the head divides by; linear in Σ."""
    size = len(covariance)
    sphere = covariance.trace() / size * torch.eye(size, dtype=covariance.dtype)
    return (1 - EPSILON) * covariance + EPSILON * sphere


def head(gaussians: Gaussians, prior: Tensor) -> tuple[Tensor, Tensor]:
    """The linear layer (weight [C, d], bias [C]) that outputs the classes' log posteriors, up to a constant.

    ``W Σ_ε = M`` and ``b_c = −½ W_c·M_c + log π_c``. A singular Σ gives non-finite values instead of an
    error; the next loss then reports the divergence.
    """
    means, covariance = gaussians
    weight = torch.linalg.solve_ex(sphered(covariance), means.T)[0].T
    return weight, prior.log() - 0.5 * (weight * means).sum(1)


def interpolate(coefficients: tuple[float, float], local: Gaussians, common: Gaussians) -> Gaussians:
    """``b local + (1−b) common``, with b_μ for the means and b_Σ for the covariance."""
    b_means, b_covariance = coefficients
    return Gaussians(
        b_means * local.means + (1 - b_means) * common.means,
        b_covariance * local.covariance + (1 - b_covariance) * common.covariance,
    )


def estimate(
    features: Tensor, labels: Tensor, means: Tensor, cov_reg: str, least: int = 1, centre: str = "common"
) -> Gaussians:
    """Maximum-likelihood means and pooled covariance of `features` [N, d], regularised.

    Args:
        means: the common means [C, d], used for classes with fewer than `least` samples.
        centre: what the features of such classes are centred on: the ``common`` mean, or their ``own`` one.
        cov_reg: ``official`` adds 1e-4 to every entry and 1 to the diagonal; ``eps_I`` 1e-4 to the diagonal.

    The official code then clips negative eigenvalues; a scatter matrix plus either of these has none.
    """
    counts = torch.bincount(labels, minlength=len(means))
    sums = torch.zeros_like(means).index_add_(0, labels, features)
    averages = sums / counts.clamp_min(1)[:, None]
    own = torch.where((counts >= least)[:, None], averages, means)
    centred = features - (averages if centre == "own" else own)[labels]
    covariance = centred.T @ centred / max(len(features) - 1, 1)
    if cov_reg == "official":  # reads like a slip for 1e-4 I, but stands behind the published numbers
        covariance = covariance + EPSILON
        covariance.diagonal().add_(1)
    else:
        covariance.diagonal().add_(EPSILON)
    return Gaussians(own, covariance)


def halves(labels: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor] | None:
    """Row numbers of two random halves with the same classes in both; classes with one sample are left out.

    Returns:
        None if a half would have fewer than two rows, too few for a covariance.
    """
    order = torch.from_numpy(rng.permutation(len(labels)))
    order = order[(torch.bincount(labels) >= 2)[labels[order]]]
    order = order[labels[order].argsort(stable=True)]  # class by class, dealt alternately
    return (order[0::2], order[1::2]) if len(order) >= 4 else None


def validation_loss(
    features: Tensor,
    labels: Tensor,
    common: Gaussians,
    prior: Tensor,
    cov_reg: str,
    rng: np.random.Generator,
) -> Objective | None:
    """The cross-validated loss J(b): fit on one half, cross-entropy on the other, summed over both orders.

    The halves' statistics are computed here, once.

    Returns:
        None if the data cannot be halved.
    """
    pair = halves(labels, rng)
    if pair is None:
        return None
    folds = []
    for fit, test in (pair, pair[::-1]):
        local = estimate(features[fit], labels[fit], common.means, cov_reg)
        folds.append(_Fold(local, common, prior, features[test], labels[test]))

    def loss(coefficients: np.ndarray) -> tuple[float, np.ndarray]:
        values, gradients = zip(*(fold(*coefficients) for fold in folds), strict=True)
        return sum(values), np.sum(gradients, axis=0)

    return loss


class _Fold:
    """Cross-entropy of one half under the head fitted on the other, and its gradient in (b_μ, b_Σ).

    With R = (softmax − one-hot) / N, D and Δ the differences of the two means and the two Σ_ε, and
    ``H Σ_ε = R^T Z``, the gradient is the closed form below; automatic differentiation takes twice as long.
    """

    def __init__(
        self, local: Gaussians, common: Gaussians, prior: Tensor, features: Tensor, labels: Tensor
    ) -> None:
        self._means, self._step = common.means, local.means - common.means
        self._covariance = sphered(common.covariance)
        self._widening = sphered(local.covariance) - self._covariance
        self._log_prior, self._features, self._labels = prior.log(), features, labels

    def __call__(self, b_means: float, b_covariance: float) -> tuple[float, np.ndarray]:
        means = self._means + b_means * self._step
        factors = torch.linalg.lu_factor_ex(self._covariance + b_covariance * self._widening)[:2]
        weight = torch.linalg.lu_solve(*factors, means.T).T
        bias = self._log_prior - 0.5 * (weight * means).sum(1)
        log_posterior = F.linear(self._features, weight, bias).log_softmax(1)
        chosen = self._labels[:, None]
        value = -log_posterior.gather(1, chosen).mean()
        count = len(chosen)
        error = log_posterior.exp_().scatter_add_(1, chosen, -torch.ones_like(chosen, dtype=bias.dtype))
        error /= count
        reach = torch.linalg.lu_solve(*factors, self._features.T @ error).T
        pull, widened = error.sum(0), weight @ self._widening
        by_means = (self._step * reach).sum() - (self._step * weight).sum(1) @ pull
        by_covariance = 0.5 * (widened * weight).sum(1) @ pull - (widened * reach).sum()
        return value.item(), np.array([by_means.item(), by_covariance.item()])


def best_coefficients(
    objective: Objective | None, previous: Sequence[float], single: bool
) -> tuple[float, float]:
    """The minimiser (b_μ, b_Σ) of `objective` in the unit square, from (0.5, 0.5) in at most 10 iterations.

    A bounded solver takes the place of the official L-BFGS with clipping inside the objective, whose
    gradient is zero outside the square. SLSQP needs as many evaluations as L-BFGS-B and ends at the same
    point, but keeps off SciPy's multi-threaded linear algebra, whose waiting cost more than the work.

    Args:
        objective: None (the data could not be halved) gives (0, 0): the common statistics alone.
        previous: returned if the search fails, that is, ends at a value that is not finite.
        single: tie the two coefficients.
    """
    if objective is None:
        return 0.0, 0.0
    from scipy.optimize import minimize  # takes half a second to import; only pFedFDA needs it

    def tied(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective(np.repeat(x, 2))
        return value, gradient.sum(keepdims=True)

    start = START[:1] if single else START
    found = minimize(
        tied if single else objective,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * len(start),
        options={"maxiter": 10, "ftol": 1e-6},
    )
    if not (np.isfinite(found.fun) and np.isfinite(found.x).all()):
        return float(previous[0]), float(previous[1])
    point = found.x.clip(0, 1)
    return float(point[0]), float(point[-1])


def fit(
    features: Tensor,
    labels: Tensor,
    common: Gaussians,
    prior: Tensor,
    rng: np.random.Generator,
    *,
    cov_reg: str,
    single: bool,
    least: int,
    previous: Sequence[float],
    centre: str = "common",
) -> tuple[tuple[float, float], Gaussians]:
    """A client's coefficients, and its own Gaussians interpolated by them with the common ones.

    The arguments are those of `validation_loss`, `best_coefficients` and `estimate`.
    """
    objective = validation_loss(features, labels, common, prior, cov_reg, rng)
    chosen = best_coefficients(objective, previous, single)
    local = estimate(features, labels, common.means, cov_reg, least, centre)
    return chosen, interpolate(chosen, local, common)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep PyTorch to one thread, as a context or a decorator.

    With matrices this small, threads wait for each other most of the time.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
