"""Test accuracy, client by client; the last round is the headline, never the best round.

Macro-F1, AUC and the accuracy of the shared model are of the last round only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.calibration import Predicted, calibration, predicted, scaled, temperature
from pfl_benchmark.engine.clients import chunks
from pfl_benchmark.engine.ledger import Ledger
from pfl_benchmark.engine.local import LocalCall, Phase, StackedModel
from pfl_benchmark.engine.params import exact, expand
from pfl_benchmark.engine.scores import macro_auc, macro_f1
from pfl_benchmark.errors import UserError
from pfl_benchmark.records.metrics import ClientMetrics
from pfl_benchmark.records.outputs import SavedOutputs


def evaluate(
    algorithm: Algorithm, kept: SavedOutputs | None = None, clients: Sequence[int] | None = None
) -> ClientMetrics:
    """Evaluate every client's model as it stands.

    Args:
        kept: in the final evaluation, with which macro-F1 and AUC are computed: takes what is to be kept.
        clients: only these; by default all that take part in training.
    """
    clients = range(algorithm.task.data.clients) if clients is None else clients
    parts = [_measure(algorithm, algorithm.members(chunk), chunk, kept) for chunk in chunks(clients)]
    return _join(parts, kept is not None)


def evaluate_adapted(
    algorithm: Algorithm,
    round: int,
    ledger: Ledger,
    kept: SavedOutputs | None = None,
    clients: Sequence[int] | None = None,
    most: int | None = None,
) -> ClientMetrics:
    """Let every client adapt a copy of its final model, evaluate the copy and drop it.

    Args:
        round: the one after that which is evaluated: after the last round the batch orders are new ones.
        ledger: is charged for the compute.
        kept, clients: as in `evaluate`.
        most: epochs after which the adaptation ends.
    """
    parts, phases = [], algorithm.adaptation()
    if most is not None:
        phases = _cut(phases, most)
    clients = range(algorithm.task.data.clients) if clients is None else clients
    for chunk in chunks(clients):
        (member,) = algorithm.members(chunk)
        model = StackedModel(member.network, member.params)
        outcome = algorithm.task.executor.train(LocalCall(round, chunk, {"model": model}, phases))
        ledger.charge_adaptation(outcome)
        adapted = StackedModel(member.network, outcome.models["model"])
        parts.append(_measure(algorithm, [adapted], chunk, kept))
    return _join(parts, kept is not None)


def evaluate_shared(algorithm: Algorithm) -> float | None:
    """Accuracy of the shared model on the test samples of all clients, each sample once.

    Returns:
        The share of correct predictions; None for methods without such a model.
    """
    model, data = algorithm.shared_model(), algorithm.task.data
    if model is None:
        return None
    right: dict[int, bool] = {}
    for chunk in chunks(range(data.clients)):
        params = expand(model, len(chunk))
        outputs = algorithm.task.executor.forward(algorithm.network, params, chunk, "test")
        for client, scores in zip(chunk, outputs, strict=True):
            correct = scores.argmax(1) == data.labels(client, "test")
            right.update(zip(data.rows(client, "test").tolist(), correct.tolist(), strict=True))
    return sum(right.values()) / len(right)


_Row = tuple[int, int, float, float, float]
_Part = tuple[list[_Row], Predicted, Predicted | None]  # the last under the clients' temperatures


def _cut(phases: Sequence[Phase], most: int) -> list[Phase]:
    """The first `most` epochs of some phases."""
    found = []
    for phase in phases:
        if not isinstance(phase.epochs, int):
            raise UserError(
                "`adaptation` gives a phase by batches; expected epochs, which --adapt-epochs cuts"
            )
        epochs = min(phase.epochs, most)
        found.append(dataclasses.replace(phase, epochs=epochs))
        most -= epochs
    return found


def _measure(
    algorithm: Algorithm, members: Sequence[StackedModel], clients: list[int], kept: SavedOutputs | None
) -> _Part:
    found = list(algorithm.scores(members, clients, "test"))
    labels = [algorithm.task.data.labels(client, "test") for client in clients]
    if kept is not None:
        kept.take(clients, members, found, labels)
    rows = []
    for scores, own in zip(found, labels, strict=True):
        chosen = scores.argmax(1)
        f1 = auc = 0.0
        if kept is not None:
            true = own.cpu().numpy()
            f1 = macro_f1(chosen.cpu().numpy(), true)
            auc = macro_auc(torch.softmax(exact(scores), 1).cpu().numpy(), true)
        loss = float(F.cross_entropy(scores, own))
        rows.append((int((chosen == own).sum()), len(own), loss, f1, auc))
    cooled = None
    if algorithm.config.temperature_scaling and kept is not None:
        cooled = predicted(_cooled(algorithm, members, clients, found), labels)
    return rows, predicted(found, labels), cooled


def _cooled(
    algorithm: Algorithm, members: Sequence[StackedModel], clients: list[int], found: Sequence[Tensor]
) -> list[Tensor]:
    """Test logits, divided by each client's temperature on its training samples; no part of the method."""
    with algorithm.meter.apart():
        seen = algorithm.scores(members, clients, "train")
    labels = [algorithm.task.data.labels(client) for client in clients]
    return [
        scores / temperature(*pair)
        for scores, pair in zip(found, zip(seen, labels, strict=True), strict=True)
    ]


def _join(parts: list[_Part], detailed: bool) -> ClientMetrics:
    rows = (row for part, _, _ in parts for row in part)
    correct, total, loss, *more = map(np.array, zip(*rows, strict=True))
    scores = calibration([part for _, part, _ in parts])
    if cooled := [part for _, _, part in parts if part]:
        scores |= scaled(cooled)
    return ClientMetrics(correct, total, loss, *(more if detailed else ()), calibration=scores)
