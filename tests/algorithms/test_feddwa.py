"""FedDWA: whose models a client's next one is mixed of."""

import pytest
import torch
from equations import EVERYONE, ONE_STEP, close, gradient_at

from pfl_benchmark.algorithms.feddwa import nearest
from pfl_benchmark.method import strip_prefix


@pytest.mark.parametrize(
    ("count", "expected"), [(1, [1, 0, 0]), (2, [0.8, 0.2, 0]), (9, [0.75, 0.1875, 0.0625])]
)
def test_weights_are_inverse_squares_of_the_nearest(count, expected):
    close(nearest(torch.tensor([[1.0, 4.0, 12.0]]).expand(3, 3), count), torch.tensor([expected] * 3).float())


def test_a_model_that_does_not_move_is_ones_own():
    close(nearest(torch.tensor([[0.0, 4.0], [4.0, 0.0]]), 2), torch.eye(2))


def test_the_server_mixes_by_distances_to_the_model_ahead(begun):
    algorithm, _, outcome = begun("feddwa", {"neighbours": 2, "ahead_epochs": 2}, (1, 4, 5))
    sent = algorithm.upload(outcome)
    gathered = algorithm.aggregator()
    gathered.add([1, 4, 5], sent, torch.ones(3) / 3)
    algorithm.aggregate(gathered.value())
    ahead = outcome.models["model"]
    models = strip_prefix("trained", ahead)
    mixed = algorithm.message([1, 4, 5], 2).per_client
    (member,) = algorithm.members([1, 4, 5])
    for place in range(3):
        squares = torch.stack(
            [sum((ahead[n][place] - models[n][other]).square().sum() for n in models) for other in range(3)]
        )
        weights = 1 / squares
        weights[squares.argmax()] = 0
        weights = weights / weights.sum()
        for name, tensor in models.items():
            close(mixed[name][place], torch.tensordot(weights, tensor, 1))
            assert torch.equal(member.params[name], mixed[name])
    untouched = algorithm.message([0], 2).per_client
    assert all(torch.equal(untouched[name][0], tensor) for name, tensor in algorithm.task.initial.items())


def test_the_model_ahead_goes_on_from_the_trained_one(begun):
    """What is sent first is FedAvg's model; a step more leads to the other."""
    algorithm, call, outcome = begun("feddwa", {"ahead_epochs": 1}, **ONE_STEP)
    _, _, plain = begun("fedavg", **ONE_STEP)
    sent, task, lr = algorithm.upload(outcome), algorithm.task, algorithm.config.lr
    assert [phase.epochs for phase in call.phases] == [1, 1]
    for client in EVERYONE:
        trained = {name: sent[name][client] for name in algorithm.network.shapes()}
        close(trained, {name: plain.models["model"][name][client] for name in trained})
        slopes = gradient_at(task, trained, client)
        for name, slope in slopes.items():
            close(sent[f"ahead.{name}"][client], trained[name] - lr * slope)


def test_the_model_ahead_takes_as_long_as_the_other_by_default(tiny, play):
    ours, fedavg = play(tiny("feddwa")), play(tiny("fedavg"))
    assert ours.summary["samples"] == 2 * fedavg.summary["samples"]
