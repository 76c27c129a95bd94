"""FedDecomp: what sums are made of, and who learns when."""

import pytest
import torch
from equations import EVERYONE, ONE_STEP, close, loss_at

from pfl_benchmark.algorithms.feddecomp import LOW, FedDecompHyper, factors, summed
from pfl_benchmark.method import row


@pytest.mark.parametrize(
    ("shape", "up", "down"),
    [
        ((10, 84), (10, 4), (4, 84)),
        ((16, 6, 5, 5), (80, 45), (45, 30)),
        ((16, 6, 5), (16, 9), (9, 30)),
        ((1, 3, 3, 3), (3, 3), (3, 9)),
    ],
)
def test_a_part_has_the_size_of_its_weight(shape, up, down):
    assert factors(shape, FedDecompHyper()) == (up, down)
    weight, b, a = torch.randn(2, *shape), torch.randn(2, *up), torch.randn(2, *down)
    found = summed({"w": weight, "bias": torch.ones(2, 3), f"{LOW}.w.b": b, f"{LOW}.w.a": a})
    rank = up[1] / (shape[2] if len(shape) == 4 else 1)
    close(found["w"][1], weight[1] + (b[1] @ a[1]).reshape(shape) / rank)
    assert [*found] == ["w", "bias"]


def test_the_part_of_low_rank_learns_first_and_the_shared_one_with_it(tiny, ready):
    hyper = {"low_epochs": 1, "linear_rank": 3}
    algorithm = ready(tiny("feddecomp", hyper, **ONE_STEP | {"local_epochs": 2})).algorithm
    task, lr = algorithm.task, algorithm.config.lr
    kept = algorithm.clients.gather([2])
    algorithm.clients.scatter([2], {name: tensor + 0.1 for name, tensor in kept.items()})
    call = algorithm.begin([2], algorithm.message([2], 2), 2)
    params = row(call.models["model"].params, 0)
    outcome = task.executor.train(call)
    for low in (True, False):
        leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in params.items()}
        whole = row(summed({name: tensor[None] for name, tensor in leaves.items()}), 0)
        slopes = torch.autograd.grad(loss_at(task, whole, 2), leaves.values())
        for name, slope in zip(leaves, slopes, strict=True):
            if name.startswith(f"{LOW}.") == low:
                params[name] = params[name] - lr * slope
    close(row(outcome.models["model"], 0), params)


def test_what_is_sent_is_the_shared_part_and_what_is_evaluated_the_sum(begun):
    algorithm, _, outcome = begun("feddecomp", {"low_epochs": 1}, local_epochs=2)
    sent = algorithm.upload(outcome)
    algorithm.keep(outcome)
    algorithm.aggregate({name: tensor.mean(0) for name, tensor in sent.items()})
    assert sent.keys() == algorithm.network.shapes().keys()
    (member,) = algorithm.members(EVERYONE)
    low = {name: tensor for name, tensor in outcome.models["model"].items() if name.startswith(LOW)}
    mean = {name: tensor.expand(6, *tensor.shape) for name, tensor in algorithm.server.items()}
    close(member.params, summed({**mean, **low}))
    assert not torch.equal(member.params["conv1.weight"][0], member.params["conv1.weight"][1])


@pytest.mark.parametrize(("local", "epochs"), [(5, [2, 3]), (2, [2, 1]), (1, [2, 1])])
def test_epochs_are_divided(local, epochs, tiny, ready):
    phases = ready(tiny("feddecomp", local_epochs=local)).algorithm.phases(1)
    assert [phase.epochs for phase in phases] == epochs


def test_without_parts_of_low_rank_it_is_fedavg(tiny, play):
    """They begin as 0, and stay so where they do not learn."""
    ours, fedavg = play(tiny("feddecomp", {"low_epochs": 0})), play(tiny("fedavg"))
    close(ours.history[-1], fedavg.history[-1])
