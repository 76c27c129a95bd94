"""The data of the synthetic study (paper, section "Synthetic Data").

Client k has n samples y = W_kᵀx + ε with x ~ N(0, Σ_k) and W_k = (1 − r_p) W_g + r_p W_l^k. The paper states
neither d nor Σ_k nor any variance: the constants are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pfl_benchmark.engine.streams import Streams

DIMENSION = 100  # d
NOISE_VARIANCE = 0.25  # σ_ε², the smallest test error that anyone can expect
LOW, HIGH = 0.5, 1.5  # range of the diagonal of Σ_k, and of α_k
TEST_SAMPLES = 200  # per client

Ratio = float | str  # r_p: a number, or `UNIFORM`
UNIFORM = "U(0,1)"  # every client draws its own r_p


@dataclass(frozen=True)
class Federation:
    """What a seed draws; r_p is chosen afterwards, so that all its values share the same draws.

    Attributes:
        x, noise: features and ε of the training samples, [K, n, d] and [K, n].
        x_test, noise_test: the same of the test samples, [K, m, d] and [K, m].
        common: W_g [d].
        own: W_l [K, d].
        ratios: what a client's r_p is under `UNIFORM` [K].
    """

    x: np.ndarray
    noise: np.ndarray
    x_test: np.ndarray
    noise_test: np.ndarray
    common: np.ndarray
    own: np.ndarray
    ratios: np.ndarray

    def weights(self, ratio: Ratio) -> np.ndarray:
        """True weights W_k [K, d]."""
        own = self.ratios[:, None] if ratio == UNIFORM else float(ratio)
        return (1 - own) * self.common + own * self.own

    def responses(self, ratio: Ratio) -> tuple[np.ndarray, np.ndarray]:
        """Training and test responses y, [K, n] and [K, m]."""
        weights = self.weights(ratio)[:, :, None]
        return (self.x @ weights)[..., 0] + self.noise, (self.x_test @ weights)[..., 0] + self.noise_test


def draw(
    seed: int,
    clients: int,
    samples: int,
    dimension: int = DIMENSION,
    noise_variance: float = NOISE_VARIANCE,
    test_samples: int = TEST_SAMPLES,
) -> Federation:
    """Draw a federation: W_g ~ N(0, I/d), W_l^k ~ N(0, α_k I/d), Σ_k diagonal, α_k and Σ_k ~ U(0.5, 1.5).

    Every client has streams of its own: the first clients of a larger federation are a smaller one.
    """
    streams = Streams(seed)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in Federation.__dataclass_fields__}
    rows["common"] = list(streams.get("init").normal(0, dimension**-0.5, dimension))
    for client in range(clients):
        truth = streams.get("init", round=1, client=client)  # round 0 has given W_g
        variances = truth.uniform(LOW, HIGH, dimension)  # diagonal of Σ_k
        alpha = truth.uniform(LOW, HIGH)
        rows["ratios"].append(truth.uniform(size=()))
        rows["own"].append(truth.normal(0, (alpha / dimension) ** 0.5, dimension))
        for round, (part, count) in enumerate((("", samples), ("_test", test_samples))):
            data = streams.get("partition", round, client)
            rows["x" + part].append(data.standard_normal((count, dimension)) * variances**0.5)
            rows["noise" + part].append(data.normal(0, noise_variance**0.5, count))
    return Federation(**{name: np.stack(values) for name, values in rows.items()})
