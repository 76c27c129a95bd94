"""Local, FedAvg, FedAvg+FT and PPFE for linear clients: sums of ridge solutions, all clients and λ at once.

``ridge_k(r; λ) = (X_kᵀX_k/n + λI)⁻¹ X_kᵀr/n`` is a division in the eigenbasis of X_kᵀX_k/n, which is found
once per client. Shapes: K clients, n samples, d features, L values of λ that are tried side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Ridge:
    """The clients' least-squares problems, diagonalised.

    Attributes:
        values: eigenvalues s_k of X_kᵀX_k/n [K, d].
        rows: V_kᵀ, the eigenvectors in rows [K, d, d].
        target: V_kᵀX_kᵀy_k/n [K, d].
    """

    values: np.ndarray
    rows: np.ndarray
    target: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray) -> Ridge:
        """Diagonalise features `x` [K, n, d] with responses `y` [K, n]."""
        values, vectors = np.linalg.eigh(x.mT @ x / x.shape[1])
        # Rounding leaves eigenvalues that are zero (n < d) slightly negative.
        bare = cls(values.clip(0), np.ascontiguousarray(vectors.mT), np.empty(0))
        return bare.aimed_at(x, y)

    def aimed_at(self, x: np.ndarray, y: np.ndarray) -> Ridge:
        """The same features `x` with other responses `y` [K, n]."""
        moments = x.mT @ y[:, :, None] / x.shape[1]
        return replace(self, target=(self.rows @ moments)[..., 0])

    def first(self, clients: int) -> Ridge:
        """The problems of the first `clients` clients."""
        return Ridge(self.values[:clients], self.rows[:clients], self.target[:clients])

    def solve(self, fitted: np.ndarray, penalty: np.ndarray) -> np.ndarray:
        """V_kᵀ ridge_k(y_k − X_k w_k; λ) for V_kᵀw_k = `fitted` [K, d, L] and λ = `penalty` [L]."""
        values = self.values[:, :, None]
        return (self.target[:, :, None] - values * fitted) / (values + penalty)

    def mean(self, rotated: np.ndarray) -> np.ndarray:
        """The mean over clients [d, L] of the vectors whose V_kᵀ multiples are `rotated` [K, d, L]."""
        clients, d, count = rotated.shape
        return self.rows.reshape(clients * d, d).T @ rotated.reshape(clients * d, count) / clients

    def rotate(self, common: np.ndarray) -> np.ndarray:
        """V_kᵀ `common` [K, d, L] for a vector that all clients share [d, L]."""
        clients, d, _ = self.rows.shape
        return (self.rows.reshape(clients * d, d) @ common).reshape(clients, d, -1)

    def zero(self, penalty: np.ndarray) -> np.ndarray:
        """w_k = 0 for every λ [K, d, L]."""
        return np.zeros((*self.target.shape, len(penalty)))


def local(problem: Ridge, penalty: np.ndarray) -> np.ndarray:
    """Every client's own ridge solution [K, d, L] for λ = `penalty` [L]."""
    return problem.rows.mT @ problem.solve(problem.zero(penalty), penalty)


def fedavg(problem: Ridge, penalty: np.ndarray) -> np.ndarray:
    """The mean of the clients' ridge solutions [K, d, L], the same for all clients.

    Paper: "averaging model parameters across clients".
    """
    mean = problem.mean(problem.solve(problem.zero(penalty), penalty))
    return np.broadcast_to(mean, (len(problem.target), *mean.shape))


def fedavg_ft(problem: Ridge, common: float, penalty: np.ndarray) -> np.ndarray:
    """FedAvg's weights, to which each client adds its ridge solution for what remains [K, d, L].

    PPFE's first stage and one personal step, without a second shared one. The paper does not compare it.

    Args:
        common: FedAvg's λ.
        penalty: λ [L] of the personal step.
    """
    fitted = problem.rotate(fedavg(problem, np.array([common]))[0])  # the same for all λ
    return problem.rows.mT @ (fitted + problem.solve(fitted, penalty))


def ppfe(problem: Ridge, penalties: Sequence[np.ndarray]) -> np.ndarray:
    """PPFE with exact local optimisation; returns the weights of the clients' ensembles [K, d, L].

    Stage t adds the mean over clients of their ridge solutions for the residuals (d floats up, d down) and,
    from stage 2 on, each client's ridge solution for what then remains (no traffic). Under squared loss
    fitting the residuals takes the place of reweighting, so that all stages have weight β = 1.

    Args:
        penalties: λ_t [L] of stages 1, 2, ….
    """
    fitted = problem.zero(penalties[0])  # V_kᵀw_k
    for stage, penalty in enumerate(penalties, start=1):
        fitted = fitted + problem.rotate(problem.mean(problem.solve(fitted, penalty)))
        if stage > 1:
            fitted = fitted + problem.solve(fitted, penalty)
    return problem.rows.mT @ fitted


def errors(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Mean squared error [K, L] of `weights` [K, d, L] on samples `x` [K, n, d], `y` [K, n]."""
    return ((x @ weights - y[:, :, None]) ** 2).mean(axis=1)
