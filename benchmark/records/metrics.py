"""Figures of clients after an evaluation, and what is told of all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

__all__ = ["ClientMetrics"]


@dataclass(frozen=True)
class ClientMetrics:
    """Per-client results, one entry a client.

    Attributes:
        correct: correctly classified test samples.
        total: test samples.
        loss: mean cross-entropy of the test samples.
        macro_f1, auc: see `engine.scores`; NaN where a client has no AUC. None on the way, and in
            records of older versions.
        calibration: scores of the samples of all clients together (`engine.calibration`), which cannot be
            told from those of each.
    """

    correct: np.ndarray
    total: np.ndarray
    loss: np.ndarray
    macro_f1: np.ndarray | None = None
    auc: np.ndarray | None = None
    calibration: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    def joined(self, others: ClientMetrics) -> ClientMetrics:
        """These clients and then `others`, of which the same is known."""
        pairs = zip(self._columns(), others._columns(), strict=True)
        return ClientMetrics(*(np.concatenate(pair) for pair in pairs))

    def divided(self, first: int) -> tuple[ClientMetrics, ClientMetrics]:
        """The first clients, and the others."""
        columns = self._columns()
        return ClientMetrics(*(c[:first] for c in columns)), ClientMetrics(*(c[first:] for c in columns))

    def _columns(self) -> list[np.ndarray]:
        """What is known."""
        columns = (self.correct, self.total, self.loss, self.macro_f1, self.auc)
        return [column for column in columns if column is not None]

    @property
    def accuracies(self) -> np.ndarray:
        return self.correct / self.total

    def summary(self) -> dict[str, float]:
        """The headline (weighted by test size) and what stands beside it, all in 0..1."""
        accuracies = np.sort(self.accuracies)
        worst = max(1, round(0.1 * len(accuracies)))
        return {
            "accuracy": float(self.correct.sum() / self.total.sum()),
            "accuracy_unweighted": float(accuracies.mean()),
            "accuracy_worst10": float(accuracies[:worst].mean()),
            "accuracy_std": float(accuracies.std()),
            "test_loss": float((self.loss * self.total).sum() / self.total.sum()),
            **self.calibration,
            **self._detailed(),
        }

    def _detailed(self) -> dict[str, float]:
        """Means over clients; of AUC over those that have one, and how many these are."""
        if self.macro_f1 is None or self.auc is None:
            return {}
        found: dict[str, float] = {"macro_f1": float(self.macro_f1.mean())}
        known = self.auc[np.isfinite(self.auc)]
        return {**found, "auc": float(known.mean()), "auc_clients": len(known)} if len(known) else found
