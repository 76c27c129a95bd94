"""FedAH: heads are mixed on all samples, then head and body train one after the other."""

import torch
from equations import EVERYONE, ONE_STEP, close, gradient_at

HEAD = ("fc3.weight", "fc3.bias")


def test_a_step_of_the_head_at_the_mixture_and_then_one_of_the_body(tiny, ready):
    algorithm = ready(tiny("fedah", {"eta": 3.0}, **ONE_STEP)).algorithm
    task, lr = algorithm.task, algorithm.config.lr
    own = {name: task.initial[name] - 0.2 for name in HEAD}
    kept = {f"local.{name}": tensor[None] for name, tensor in own.items()}
    algorithm.clients.scatter(
        [2], {**kept, **{f"shares.{n}": torch.ones(1, *t.shape) for n, t in own.items()}}
    )
    call = algorithm.begin([2], algorithm.message([2], 2), 2)
    outcome = task.executor.train(call)
    slopes = gradient_at(task, task.initial, 2)  # with shares of 1 the mixture is the global head
    shares = {name: (1 - 3.0 * slopes[name] * 0.2).clamp(0, 1) for name in HEAD}
    point = {**task.initial, **{name: own[name] + shares[name] * 0.2 for name in HEAD}}
    slopes = gradient_at(task, point, 2)
    point |= {name: point[name] - lr * slopes[name] for name in HEAD}
    slopes = gradient_at(task, point, 2)
    point |= {name: point[name] - lr * slopes[name] for name in point if name not in HEAD}
    close({name: outcome.models["model"][name][0] for name in point}, point)


def test_without_epochs_of_the_head_the_body_is_trained_as_fedbabus(begun):
    _, call, outcome = begun("fedah", {"eta": 0.0, "head_epochs": 0}, EVERYONE, local_epochs=2)
    _, _, body = begun("fedbabu", None, EVERYONE, local_epochs=2)
    assert [phase.epochs for phase in call.phases] == [0, 2]
    trained, expected = outcome.models["model"], body.models["model"]
    close({name: trained[name] for name in expected}, expected)
    assert not torch.equal(trained["conv1.weight"], call.models["model"].params["conv1.weight"])


def test_all_training_samples_count_for_the_mixture(tiny, play):
    """20 samples a client, in all rounds but the first, and in the evaluation; one epoch of head and body."""
    played = play(tiny("fedah", local_epochs=1))
    participations, later = 3 + 3 + 3 + 6, 3 + 3 + 6
    assert played.summary["samples"] == 2 * 20 * participations + 20 * later
    assert played.summary["adaptation_samples"] == 20 * 6
