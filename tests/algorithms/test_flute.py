"""FLUTE: where heads are drawn to, by clients and by the server."""

import pytest
import torch
from equations import EVERYONE, ONE_STEP, close

from pfl_benchmark.algorithms.flute import even, uneven
from pfl_benchmark.errors import UserError

HEAD = "fc3.weight"
PLAIN = {"lam1": 0.0, "lam2": 0.0, "lam3": 0.0, "server_lr": 0.0}


def test_an_even_head_is_where_it_should_be():
    """Of all classes: rows of equal length and equal angles, whose sum is 0."""
    head = torch.eye(4) - 1 / 4
    assert float(uneven(3 * head[None], even(torch.arange(4), 4)[None])) == pytest.approx(0, abs=1e-6)
    target = even(torch.tensor([0, 2, 2]), 4)
    assert float(target[0, 2]) == pytest.approx(-1 / 4 / 3**0.5)
    assert target[1].abs().sum() == target[:, 3].abs().sum() == 0


def test_the_objective_of_both_phases(tiny, ready):
    hyper = {"lam1": 0.3, "lam2": 0.02, "lam3": 0.001}
    algorithm = ready(tiny("flute", hyper, **ONE_STEP | {"local_epochs": 2})).algorithm
    task, lr = algorithm.task, algorithm.config.lr
    call = algorithm.begin([3], algorithm.message([3], 1), 1)
    outcome = task.executor.train(call)
    x, y = task.data.inputs(3), task.data.labels(3)
    target, params, last = even(y, task.data.classes), dict(task.initial), len(task.network.layers) - 1
    for joint in (False, True):
        leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in params.items()}
        features = task.network.apply(leaves, x, stop=last)
        loss = torch.nn.functional.cross_entropy(task.network.apply(leaves, features, last), y)
        product = leaves[HEAD] @ leaves[HEAD].T
        loss = loss + 0.3 * (product / product.norm() - target).norm() + 0.02 * leaves[HEAD].norm() ** 2
        loss = loss + (0.001 * features.norm() ** 2 if joint else 0)
        slopes = dict(zip(leaves, torch.autograd.grad(loss, leaves.values()), strict=True))
        trained = [name for name in params if joint or name.startswith("fc3.")]
        params |= {name: params[name] - lr * slopes[name] for name in trained}
    close({name: outcome.models["model"][name][0] for name in params}, params)


def test_the_server_moves_heads_and_averages_bodies(begun):
    algorithm, _, outcome = begun("flute", {"server_lr": 2.0}, (1, 4))
    sent = algorithm.upload(outcome)
    algorithm.keep(outcome)
    assert HEAD in sent
    assert "fc3.bias" not in sent
    gathered = algorithm.aggregator()
    gathered.add([1, 4], sent, torch.ones(2) / 2)
    algorithm.aggregate(gathered.value())
    received = algorithm.message([1, 4], 2).per_client[HEAD]
    for place, client in enumerate((1, 4)):
        head = sent[HEAD][place].clone().requires_grad_()
        product = head @ head.T
        gap = (
            product / product.norm() - even(algorithm.task.data.labels(client), algorithm.task.data.classes)
        ).norm()
        (slope,) = torch.autograd.grad(gap, [head])
        close(received[place], head.detach() - 2.0 / 2 * slope)
        bias = algorithm.members([client])[0].params["fc3.bias"][0]
        assert torch.equal(bias, outcome.models["model"]["fc3.bias"][place])
    close(algorithm.server["conv1.weight"], sent["conv1.weight"].mean(0))


def test_without_what_draws_heads_it_is_fedper(tiny, play):
    changes = {"local_epochs": 2, "participation": 1.0}
    ours = play(tiny("flute", {**PLAIN, "joint_epochs": 2}, **changes))
    fedper = play(tiny("fedper", **changes))
    close(ours.history[-1], fedper.history[-1])
    assert ours.summary["accuracy"] == fedper.summary["accuracy"]


def test_more_joint_epochs_than_there_are_is_refused(tiny, ready):
    with pytest.raises(UserError, match="joint_epochs=3 is more than --local-epochs 2; give at most that"):
        ready(tiny("flute", {"joint_epochs": 3}, local_epochs=2))


def test_heads_without_a_message_are_those_at_the_start(begun):
    algorithm, call, _ = begun("flute")
    for client in EVERYONE:
        assert torch.equal(call.models["model"].params[HEAD][client], algorithm.task.initial[HEAD])
