"""Test accuracy, client by client; the last round is the headline, never the best round."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F

from benchmark.engine.algorithm import Algorithm
from benchmark.engine.ensemble import Member
from benchmark.engine.ledger import Ledger
from benchmark.engine.local import LocalCall, LocalModel, Phase

__all__ = ["ClientMetrics", "chunks", "evaluate", "evaluate_adapted"]

CHUNK = 20  # clients whose models are held at the same time


@dataclass(frozen=True)
class ClientMetrics:
    """Per-client results, one entry a client.

    Attributes:
        correct: correctly classified test samples.
        total: test samples.
        loss: mean cross-entropy of the test samples.
    """

    correct: np.ndarray
    total: np.ndarray
    loss: np.ndarray

    def joined(self, others: ClientMetrics) -> ClientMetrics:
        """These clients and then `others`."""
        pairs = ((getattr(self, name), getattr(others, name)) for name in ("correct", "total", "loss"))
        return ClientMetrics(*(np.concatenate(pair) for pair in pairs))

    def divided(self, first: int) -> tuple[ClientMetrics, ClientMetrics]:
        """The first clients, and the others."""
        parts = [(getattr(self, n)[:first], getattr(self, n)[first:]) for n in ("correct", "total", "loss")]
        return ClientMetrics(*(a for a, _ in parts)), ClientMetrics(*(b for _, b in parts))

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
        }


def chunks(clients: Sequence[int]) -> Iterator[list[int]]:
    """Cut a list of clients into pieces that are held in memory together."""
    for start in range(0, len(clients), CHUNK):
        yield list(clients[start : start + CHUNK])


def evaluate(algorithm: Algorithm, clients: Sequence[int] | None = None) -> ClientMetrics:
    """Evaluate every client's model as it stands.

    Args:
        clients: only these; by default all that take part in training.
    """
    clients = range(algorithm.task.data.clients) if clients is None else clients
    parts = [_measure(algorithm, algorithm.members(chunk), chunk) for chunk in chunks(clients)]
    return _join(parts)


def evaluate_adapted(
    algorithm: Algorithm,
    round: int,
    ledger: Ledger,
    clients: Sequence[int] | None = None,
    most: int | None = None,
) -> ClientMetrics:
    """Let every client adapt a copy of its final model, evaluate the copy and drop it.

    Args:
        clients: only these; by default all that take part in training.
        most: epochs after which the adaptation ends.
        round: the one after that which is evaluated: after the last round the batch orders are new ones.
        ledger: is charged for the compute.
    """
    parts, phases = [], algorithm.adaptation()
    if most is not None:
        phases = _cut(phases, most)
    clients = range(algorithm.task.data.clients) if clients is None else clients
    for chunk in chunks(clients):
        (member,) = algorithm.members(chunk)
        model = LocalModel(member.network, member.params)
        outcome = algorithm.task.executor.train(LocalCall(round, chunk, {"model": model}, phases))
        ledger.charge_adaptation(outcome)
        adapted = Member(member.network, outcome.models["model"])
        parts.append(_measure(algorithm, [adapted], chunk))
    return _join(parts)


def _cut(phases: Sequence[Phase], most: int) -> list[Phase]:
    """The first `most` epochs of some phases."""
    found = []
    for phase in phases:
        found.append(dataclasses.replace(phase, epochs=min(phase.epochs, most)))
        most -= found[-1].epochs
    return found


def _measure(
    algorithm: Algorithm, members: Sequence[Member], clients: list[int]
) -> list[tuple[int, int, float]]:
    rows = []
    for client, scores in zip(clients, algorithm.scores(members, clients, "test"), strict=True):
        labels = algorithm.task.data.labels(client, "test")
        correct = int((scores.argmax(1) == labels).sum())
        rows.append((correct, len(labels), float(F.cross_entropy(scores, labels))))
    return rows


def _join(parts: list[list[tuple[int, int, float]]]) -> ClientMetrics:
    correct, total, loss = zip(*(row for part in parts for row in part), strict=True)
    return ClientMetrics(np.array(correct), np.array(total), np.array(loss))
