"""Evaluation: the figures of a summary, chunks of clients, ensembles, adaptation."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pfl_benchmark.engine import clients as module
from pfl_benchmark.engine.clients import chunks
from pfl_benchmark.engine.ensemble import SPACES, ensemble_scores
from pfl_benchmark.engine.evaluate import evaluate, evaluate_adapted
from pfl_benchmark.engine.ledger import Ledger
from pfl_benchmark.engine.local import StackedModel
from pfl_benchmark.engine.params import expand
from pfl_benchmark.records.metrics import ClientMetrics

# Figures


def test_figures_of_a_summary():
    metrics = ClientMetrics(np.array([1, 8, 10]), np.array([2, 10, 40]), np.array([1.0, 2.0, 0.5]))
    summary = metrics.summary()
    assert metrics.accuracies.tolist() == [0.5, 0.8, 0.25]
    assert summary["accuracy"] == pytest.approx(19 / 52)
    assert summary["accuracy_unweighted"] == pytest.approx(1.55 / 3)
    assert summary["accuracy_std"] == pytest.approx(np.std([0.5, 0.8, 0.25]))
    assert summary["accuracy_worst10"] == 0.25
    assert summary["test_loss"] == pytest.approx((2 + 20 + 20) / 52)


@pytest.mark.parametrize(("clients", "worst"), [(1, 1), (9, 1), (20, 2), (100, 10)])
def test_the_worst_ten_percent(clients, worst):
    correct = np.random.default_rng(0).permutation(clients)
    summary = ClientMetrics(correct, np.full(clients, 100), np.zeros(clients)).summary()
    assert summary["accuracy_worst10"] == pytest.approx(np.arange(worst).mean() / 100)


def test_equal_test_sizes_make_the_weighted_mean_the_plain_one():
    metrics = ClientMetrics(np.array([1, 2, 4]), np.array([8, 8, 8]), np.zeros(3))
    assert metrics.summary()["accuracy"] == pytest.approx(metrics.summary()["accuracy_unweighted"])


# Chunks


@pytest.mark.parametrize("count", [0, 1, 20, 21, 45])
def test_chunks_are_a_division_in_order(count):
    pieces = list(chunks(range(count)))
    assert [client for piece in pieces for client in piece] == list(range(count))
    assert all(1 <= len(piece) <= module.CHUNK for piece in pieces)


@pytest.mark.parametrize("algo", ["fedavg", "ppfe"])
def test_the_size_of_chunks_does_not_matter(
    algo, tiny, launch, unbroken, trained_rounds, tmp_path, monkeypatch
):
    """For the other methods test_resume tells."""
    monkeypatch.setattr(module, "CHUNK", 4)
    pieces = launch(tiny(algo), tmp_path).content()
    assert trained_rounds.count(4) == 2, "everyone in the last round, four and two"
    trained_rounds.clear()
    assert unbroken(algo).content() == pieces
    assert trained_rounds.count(4) in (0, 1), "the reference was made before, or is made in one piece"


# Models


def test_accuracy_and_loss_of_a_client(tiny, ready):
    algorithm = ready(tiny("fedavg")).algorithm
    task = algorithm.task
    metrics = evaluate(algorithm)
    for client in range(6):
        logits = task.network.apply(task.initial, task.data.inputs(client, "test"))
        labels = task.data.labels(client, "test")
        assert metrics.correct[client] == (logits.argmax(1) == labels).sum()
        assert metrics.total[client] == 10
        assert metrics.loss[client] == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-4)


@pytest.fixture
def members(tiny, ready):
    """Two networks on the clients 1 and 4, and what is needed to run them."""
    task = ready(tiny("fedavg")).prepared.task
    params = [task.network.init(np.random.default_rng(seed)) for seed in (1, 2)]
    clients = [1, 4]
    outputs = [[task.network.apply(own, task.data.inputs(k, "test")) for k in clients] for own in params]

    def make(*weights):
        return [StackedModel(task.network, expand(own, 2), w) for own, w in zip(params, weights, strict=True)]

    return task, clients, make, outputs


def test_a_single_model_is_measured_alike_in_either_space(tiny, ready):
    algorithm = ready(tiny("fedavg")).algorithm
    for tensor in algorithm.server.values():
        tensor.mul_(30)
    found = {}
    for algorithm.ensemble_space in SPACES:
        found[algorithm.ensemble_space] = evaluate(algorithm).loss
    assert found["logit"].max() > 30  # a probability that float32 makes 0
    assert found["probability"].tolist() == found["vote"].tolist() == found["logit"].tolist()


def test_an_ensemble_is_a_weighted_sum(members):
    task, clients, make, (first, second) = members
    a, b = torch.tensor([0.5, 2.0]), torch.tensor([1.0, 0.25])
    scores = ensemble_scores(task.executor, make(a, b), clients, "test", "logit")
    for i, score in enumerate(scores):
        torch.testing.assert_close(score, a[i] * first[i] + b[i] * second[i])
    scores = ensemble_scores(task.executor, make(a, None), clients, "test", "probability")
    for i, score in enumerate(scores):
        torch.testing.assert_close(score, a[i] * first[i].softmax(1) + second[i].softmax(1))
    scores = ensemble_scores(task.executor, make(a, b), clients, "test", "vote")
    for i, score in enumerate(scores):
        voted = torch.zeros_like(score)
        for sample, (x, y) in enumerate(zip(first[i], second[i], strict=True)):
            voted[sample, x.argmax()] += a[i]
            voted[sample, y.argmax()] += b[i]
        assert torch.equal(score, voted)


def test_a_member_without_weight_counts_once(members):
    task, clients, make, _ = members
    one = torch.ones(2)
    plain, weighted = (
        ensemble_scores(task.executor, make(w, w), clients, "test", "logit") for w in (None, one)
    )
    for a, b in zip(plain, weighted, strict=True):
        assert torch.equal(a, b)


# Adaptation


def test_adaptation_works_on_copies(tiny, ready, differing):
    algorithm = ready(tiny("fedavg-ft")).algorithm
    before = {name: tensor.clone() for name, tensor in algorithm.server.items()}
    ledger = Ledger()
    adapted = evaluate_adapted(algorithm, 5, ledger)
    assert differing(algorithm.server, before) == []
    assert ledger == Ledger(adaptation_samples=6 * 5 * 20)
    assert adapted.loss.mean() < evaluate(algorithm).loss.mean()
