"""Clients that take no part in training: after the last round they begin, and are evaluated apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.clients import chunks
from pfl_benchmark.engine.evaluate import evaluate, evaluate_adapted
from pfl_benchmark.engine.ledger import Ledger
from pfl_benchmark.records.metrics import ClientMetrics
from pfl_benchmark.records.outputs import SavedOutputs


@dataclass(frozen=True)
class Newcomers:
    """How the new clients have fared, and what that has cost besides the training.

    Attributes:
        ledger: what they received, and what they computed before they were evaluated.
    """

    metrics: ClientMetrics
    ledger: Ledger

    def summary(self) -> dict[str, Any]:
        """The entry of summary.json."""
        return {
            "clients": len(self.metrics.total),
            **self.metrics.summary(),
            "bytes_down": self.ledger.bytes_down,
            "samples": self.ledger.samples + self.ledger.adaptation_samples,
            "steps": self.ledger.steps,
        }


def admit(algorithm: Algorithm, kept: SavedOutputs) -> Newcomers:
    """Let the new clients begin and evaluate them.

    The model of nobody else changes. An adaptation of copies, where the method has one, ends after
    ``--adapt-epochs`` epochs.

    Args:
        kept: takes of their evaluation what is to be kept.
    """
    data, epochs, ledger = algorithm.task.data, algorithm.config.adapt_epochs, Ledger()
    data.admit()
    for clients in chunks(data.newcomers):
        algorithm.admit(clients, epochs, ledger)
    if algorithm.adaptation():
        after = algorithm.task.rounds + 1
        metrics = evaluate_adapted(algorithm, after, ledger, kept, data.newcomers, epochs)
    else:
        metrics = evaluate(algorithm, kept, data.newcomers)
    ledger.charge_metered(algorithm.meter)
    return Newcomers(metrics, ledger)
