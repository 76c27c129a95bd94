"""Test accuracy, client by client; the last round is the headline, never the best round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from benchmark.engine.algorithm import Algorithm, Member
from benchmark.engine.data import Part
from benchmark.engine.executors import Executor
from benchmark.engine.ledger import Ledger
from benchmark.engine.local import LocalCall, LocalModel

__all__ = [
    "SPACES",
    "ClientMetrics",
    "as_logits",
    "chunks",
    "ensemble_scores",
    "evaluate",
    "evaluate_adapted",
    "summand",
]

SPACES = ("logit", "probability", "vote")  # what the members of an ensemble are summed in
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


def ensemble_scores(
    executor: Executor, members: list[Member], clients: Sequence[int], part: Part, space: str
) -> list[Tensor]:
    """Weighted sum of the members' logits (or probabilities, or votes), per client [n, C]."""
    sums: list[Tensor] = []
    for member in members:
        outputs = executor.forward(member.network, member.params, clients, part)
        outputs = [summand(output, space) for output in outputs]
        if member.weights is not None:
            outputs = [output * weight for output, weight in zip(outputs, member.weights, strict=True)]
        sums = [a + b for a, b in zip(sums, outputs, strict=True)] if sums else outputs
    return sums


def summand(logits: Tensor, space: str) -> Tensor:
    """What an ensemble sums of one member's logits [n, C]: these, softmax, or 1 for its class and else 0."""
    if space == "vote":
        return F.one_hot(logits.argmax(1), logits.shape[1]).to(logits.dtype)
    return logits.softmax(1) if space == "probability" else logits


def as_logits(scores: Tensor, space: str) -> Tensor:
    """Sums [n, C] of an ensemble as what a cross-entropy takes; sums of 0 or less become very small."""
    return scores if space == "logit" else scores.clamp_min(1e-12).log()


def evaluate(algorithm: Algorithm, executor: Executor) -> ClientMetrics:
    """Evaluate every client's model as it stands."""
    parts = [
        _measure(algorithm, executor, algorithm.members(chunk), chunk)
        for chunk in chunks(range(algorithm.task.data.clients))
    ]
    return _join(parts)


def evaluate_adapted(algorithm: Algorithm, executor: Executor, round: int, ledger: Ledger) -> ClientMetrics:
    """Let every client adapt a copy of its final model, evaluate the copy and drop it.

    Args:
        round: counts on from the last round, so that the batch orders are new ones.
        ledger: is charged for the compute.
    """
    parts = []
    for chunk in chunks(range(algorithm.task.data.clients)):
        (member,) = algorithm.members(chunk)
        model = LocalModel(member.network, member.params)
        outcome = executor.train(LocalCall(round, chunk, {"model": model}, algorithm.adaptation()))
        ledger.charge_adaptation(outcome)
        adapted = Member(member.network, outcome.models["model"])
        parts.append(_measure(algorithm, executor, [adapted], chunk))
    return _join(parts)


def _measure(
    algorithm: Algorithm, executor: Executor, members: list[Member], clients: list[int]
) -> list[tuple[int, int, float]]:
    data = algorithm.task.data
    space = algorithm.ensemble_space if len(members) > 1 else "logit"  # of a single model they are the same
    rows = []
    for client, scores in zip(
        clients, ensemble_scores(executor, members, clients, "test", space), strict=True
    ):
        labels = data.labels(client, "test")
        correct = int((scores.argmax(1) == labels).sum())
        rows.append((correct, len(labels), float(F.cross_entropy(as_logits(scores, space), labels))))
    return rows


def _join(parts: list[list[tuple[int, int, float]]]) -> ClientMetrics:
    correct, total, loss = zip(*(row for part in parts for row in part), strict=True)
    return ClientMetrics(np.array(correct), np.array(total), np.array(loss))
