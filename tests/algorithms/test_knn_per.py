"""kNN-Per: shares of the neighbours, and their mixture with the model's probabilities."""

import math

import pytest
import torch
from equations import close

from pfl_benchmark.algorithms.knn_per import neighbour_shares


def test_predictions_are_the_mixture(tiny, ready):
    """λ of the neighbours' classes, 1 − λ of the model's probabilities."""
    algorithm = ready(tiny("knn-per", {"weight": 0.2, "neighbours": 3})).algorithm
    task, last = algorithm.task, algorithm.network.index("fc3")
    (scores,) = algorithm.scores(algorithm.members([2]), [2], "test")
    store, x = (
        task.network.apply(task.initial, task.data.inputs(2, part), stop=last).flatten(1)
        for part in ("train", "test")
    )
    shares = neighbour_shares(store, task.data.labels(2), x, 3, 10)
    probabilities = task.network.apply(task.initial, x, last).softmax(1)
    close(scores.exp(), (0.2 * shares + 0.8 * probabilities).float())


def test_neighbours_count_by_their_distance():
    store, labels = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [9.0, 9.0]]), torch.tensor([0, 1, 1, 2])
    (shares,) = neighbour_shares(store, labels, torch.zeros(1, 2), 3, 4)
    kernel = [1.0, math.exp(-1 / 2), math.exp(-4 / 2)]
    expected = [kernel[0], kernel[1] + kernel[2], 0, 0]
    assert shares.tolist() == pytest.approx([value / sum(kernel) for value in expected])
    assert neighbour_shares(store, labels, torch.zeros(1, 2), 99, 4).sum() == pytest.approx(1)


def test_knn_per_without_neighbours_is_fedavg(tiny, play):
    ours, fedavg = play(tiny("knn-per", {"weight": 0.0})), play(tiny("fedavg"))
    assert ours.summary["accuracy"] == fedavg.summary["accuracy"]
    assert ours.summary["test_loss"] == pytest.approx(fedavg.summary["test_loss"], rel=1e-5)
    assert ours.summary["adaptation_samples"] == 6 * 20
