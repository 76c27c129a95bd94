"""FedRoD: two heads, their losses, and the sum that clients are evaluated with."""

import pytest
import torch
import torch.nn.functional as F
from equations import ONE_STEP, close


def test_predictions_are_the_sum_of_both_heads(tiny, ready):
    algorithm = ready(tiny("fedrod")).algorithm
    task, last = algorithm.task, algorithm.network.index("fc3")
    weight = torch.randn(10, 32, generator=torch.Generator().manual_seed(0))
    bias = torch.arange(10.0)
    algorithm.clients.scatter([2], {"personal.weight": weight[None], "personal.bias": bias[None]})
    (scores,) = algorithm.scores(algorithm.members([2]), [2], "test")
    features = task.network.apply(task.initial, task.data.inputs(2, "test"), stop=last)
    generic = task.network.apply(task.initial, features, last)
    close(scores, generic + F.linear(features, weight, bias))


def test_fedrods_heads_learn_from_their_own_losses(begun):
    algorithm, _, outcome = begun("fedrod", None, (2,), momentum=0.0, **ONE_STEP)
    task, last = algorithm.task, algorithm.network.index("fc3")
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in task.initial.items()}
    x, y = task.data.inputs(2), task.data.labels(2)
    counts = torch.bincount(y, minlength=10).float()
    features = task.network.apply(leaves, x, stop=last)
    generic = task.network.apply(leaves, features, last)
    present = counts > 0  # the balanced softmax by its definition: a sum over n_c exp(z_c)
    partition = (counts * generic.exp())[:, present].sum(1)
    balanced = partition.log() - generic.gather(1, y[:, None])[:, 0] - counts[y].log()
    for (name, start), gradient in zip(
        leaves.items(), torch.autograd.grad(balanced.mean(), leaves.values(), retain_graph=True), strict=True
    ):
        close(outcome.models["model"][name][0], start.detach() - 0.05 * gradient)
    weight = task.initial["fc3.weight"].clone().requires_grad_()
    personal = F.linear(features.detach(), weight, task.initial["fc3.bias"])
    loss = F.cross_entropy(generic.detach() + personal, y)
    (gradient,) = torch.autograd.grad(loss, [weight])
    close(outcome.models["model"]["personal.weight"][0], weight.detach() - 0.05 * gradient)
    assert outcome.loss[0] == pytest.approx((balanced.mean() + loss).item(), rel=1e-4)
