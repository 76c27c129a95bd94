"""The two studies as grids of points, the choice of λ, and one tidy table of all test errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pfl_benchmark.papers.ppfe.synthetic.model import UNIFORM, Federation, Ratio, draw
from pfl_benchmark.papers.ppfe.synthetic.ridge import Ridge, errors, fedavg, fedavg_ft, local, ppfe

STAGES = 4  # T (paper)
DECAY = 0.5  # of λ from stage to stage; the paper says "progressively reduced"
HELD_OUT = 0.2  # share of the training samples that chooses λ (paper)
GRID = np.logspace(-4, 3, 15)
PERSONAL_GRID = np.logspace(-3, 4, 15)  # its top leaves the personal steps next to nothing to do

# FedAvg's validation error is flat for small λ where K is large: 80 samples are fitted, fewer than d. Fitted
# again to all n = d = 100 samples, the smallest λ meet the interpolation peak, and the test error depends on
# which of the equals has won (K = 100, ten seeds: 0.49 to 0.67 without this, 0.49 to 0.53 with it).
TIE = 0.002  # validation errors that differ by at most this share count as equal, and the largest λ wins

# Names in the table -> as tables and figures print them.
METHODS = {
    "local": "Local Only",
    "fedavg": "FedAvg",
    "fedavg-ft": "FedAvg+FT",
    "ppfe": "PPFE",
    "ppfe-one-lambda": "PPFE, one λ",
    "local-own-lambda": "Local Only, own λ",
}
ALONE = {"local-own-lambda"}  # a client's λ by its own held-out samples; else one λ by those of all clients

Part = tuple[np.ndarray, np.ndarray]  # features [K, n, d] and responses [K, n]


@dataclass(frozen=True)
class Study:
    """A grid of points.

    Attributes:
        title: what is varied.
        clients: the numbers of clients K.
        ratios: the personalization ratios r_p.
        samples: training samples n_k of every client.
    """

    title: str
    clients: tuple[int, ...]
    ratios: tuple[Ratio, ...]
    samples: int


@dataclass(frozen=True)
class Profile:
    """The studies by name, and how many seeds each point gets."""

    studies: dict[str, Study]
    seeds: int


def _profile(clients: tuple[int, ...], ratios: tuple[float, ...], seeds: int) -> Profile:
    return Profile(
        {
            "A": Study("number of clients", clients, (0.5,), 100),
            "B": Study("personalization ratio", (100,), (*ratios, UNIFORM), 200),
        },
        seeds,
    )


PROFILES = {
    "quick": _profile((20, 50, 100), (0.0, 0.25, 0.5, 0.75, 1.0), seeds=2),
    "lite": _profile((20, 50, 100, 150, 200), (0.0, 0.25, 0.5, 0.75, 1.0), seeds=3),
    "paper": _profile((20, 50, 100, 150, 200), tuple(tenth / 10 for tenth in range(11)), seeds=10),
}


def run_studies(profile: Profile, seeds: Iterable[int], tie: float = TIE) -> pd.DataFrame:
    """Test errors of all methods on all points.

    Args:
        tie: share by which a validation error may exceed the smallest and still count as equal to it; 0
            takes the λ with the smallest error, however small the difference.

    Returns:
        One row per study, point, method and seed. Columns: ``study``, ``clients`` (K), ``samples`` (n_k),
        ``r_p`` (text: a number, or U(0,1)), ``method``, ``seed``, ``mse`` (test error, mean over clients),
        ``mse_std`` (its standard deviation over clients), ``lambda`` (the one chosen: of all stages for
        Local, FedAvg and PPFE with one λ, which halves it from stage to stage; of the personal step for
        FedAvg+FT and of stage 2 for PPFE, which begin with FedAvg's; the median over clients where each
        chooses its own), ``validation_mse`` (what has chosen it, mean over clients).
    """
    rows = []
    for seed in seeds:
        for name, study in profile.studies.items():
            for row in _points(study, draw(seed, max(study.clients), study.samples), tie):
                rows.append({"study": name, "samples": study.samples, "seed": seed, **row})
    columns = ["study", "clients", "samples", "r_p", "method", "seed", "mse", "mse_std", "lambda"]
    frame = pd.DataFrame(rows, columns=[*columns, "validation_mse"])
    return frame.sort_values("study", kind="stable", ignore_index=True)


def summarise(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds (None for a single one) of one study's rows, point by point.

    Returns:
        Per point ``clients`` or ``r_p``, whichever is varied, and ``<method>_mean`` and ``<method>_std``.
    """
    varied = "clients" if rows["clients"].nunique() > 1 else "r_p"
    points = []
    for value in rows[varied].unique():
        point: dict[str, Any] = {varied: value if varied == "r_p" else int(value)}
        for method in METHODS:
            found = rows.loc[(rows[varied] == value) & (rows["method"] == method), "mse"].to_numpy()
            point[f"{method}_mean"] = float(found.mean())
            point[f"{method}_std"] = float(found.std(ddof=1)) if len(found) > 1 else None
        points.append(point)
    return points


def _points(study: Study, federation: Federation, tie: float) -> list[dict[str, object]]:
    """The rows of one seed."""
    rows: list[dict[str, object]] = []
    x, kept = federation.x, study.samples - round(HELD_OUT * study.samples)
    y, _ = federation.responses(study.ratios[0])
    # All points have the same features, and so the same eigenvectors.
    whole, fitted = Ridge.of(x, y), Ridge.of(x[:, :kept], y[:, :kept])
    for ratio in study.ratios:
        y, y_test = federation.responses(ratio)
        whole, fitted = whole.aimed_at(x, y), fitted.aimed_at(x[:, :kept], y[:, :kept])
        for clients in study.clients:
            held_out = x[:clients, kept:], y[:clients, kept:]
            test = federation.x_test[:clients], y_test[:clients]
            for row in _compare(fitted.first(clients), held_out, whole.first(clients), test, tie):
                rows.append({"clients": clients, "r_p": str(ratio), **row})
    return rows


def _compare(fitted: Ridge, held_out: Part, whole: Ridge, test: Part, tie: float) -> list[dict[str, object]]:
    """Choose every method's λ on the held-out samples, fit again on all of them, and test."""
    common = np.nan  # FedAvg's λ, with which FedAvg+FT and PPFE's first stage repeat it

    def fine_tuned(problem: Ridge, penalty: np.ndarray) -> np.ndarray:
        return fedavg_ft(problem, common, penalty)

    def staged(problem: Ridge, penalty: np.ndarray) -> np.ndarray:
        later = [penalty * DECAY**stage for stage in range(STAGES - 1)]
        return ppfe(problem, [np.full_like(penalty, common), *later])

    def one_lambda(problem: Ridge, penalty: np.ndarray) -> np.ndarray:
        return ppfe(problem, [penalty * DECAY**stage for stage in range(STAGES)])

    methods: dict[str, tuple[Callable[[Ridge, np.ndarray], np.ndarray], np.ndarray]] = {
        "local": (local, GRID),
        "fedavg": (fedavg, GRID),
        "fedavg-ft": (fine_tuned, PERSONAL_GRID),
        "ppfe": (staged, PERSONAL_GRID),
        "ppfe-one-lambda": (one_lambda, PERSONAL_GRID),
        "local-own-lambda": (local, GRID),
    }
    clients = np.arange(len(whole.target))
    rows: list[dict[str, object]] = []
    for name, (fit, grid) in methods.items():
        validation = errors(fit(fitted, grid), *held_out)
        if name not in ALONE:
            validation = validation.mean(axis=0, keepdims=True)
        equal = validation <= validation.min(axis=1, keepdims=True) * (1 + tie)
        best = len(grid) - 1 - equal[:, ::-1].argmax(axis=1)  # largest λ among equals: [1] or [K]
        mse = errors(fit(whole, grid[best]), *test)[clients, clients % len(best)]
        if name == "fedavg":
            common = grid[best[0]]
        rows.append(
            {
                "method": name,
                "mse": float(mse.mean()),
                "mse_std": float(mse.std()),
                "lambda": float(np.median(grid[best])),
                "validation_mse": float(np.take_along_axis(validation, best[:, None], axis=1).mean()),
            }
        )
    return rows
