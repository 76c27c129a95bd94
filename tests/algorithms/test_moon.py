"""MOON: its objective by plain autograd, and what a client contrasts with."""

import torch
import torch.nn.functional as F
from equations import ONE_STEP, close

from pfl_benchmark.engine.params import clone, strip_prefix

SHARES = {"mu": 2.0, "temperature": 0.3}


def moved(params, seed):
    """The same model with noise on every tensor."""
    rng = torch.Generator().manual_seed(seed)
    return {name: tensor + 0.1 * torch.randn(tensor.shape, generator=rng) for name, tensor in params.items()}


def test_the_objective_is_cross_entropy_and_the_contrast_of_features(tiny, ready):
    algorithm = ready(tiny("moon", SHARES, momentum=0.0, **ONE_STEP)).algorithm
    task, last = algorithm.task, algorithm.network.index("fc3")
    received, previous = moved(task.initial, 1), moved(task.initial, 2)
    algorithm.server = clone(received)
    kept = {f"previous.{name}": tensor[None] for name, tensor in previous.items()}
    algorithm.clients.scatter([3], {**kept, "contrast.known": torch.ones(1, 1)})
    outcome = task.executor.train(algorithm.begin([3], algorithm.message([3], 2), 2))
    x, y = task.data.inputs(3), task.data.labels(3)
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in received.items()}
    z, ahead, behind = (task.network.apply(model, x, stop=last) for model in (leaves, received, previous))
    near, far = (F.cosine_similarity(z, other).div(0.3).exp() for other in (ahead, behind))
    contrast = -(near / (near + far)).log().mean()
    loss = F.cross_entropy(task.network.apply(leaves, z, last), y) + 2.0 * contrast
    close(outcome.loss[0], loss.detach())
    gradients = torch.autograd.grad(loss, leaves.values())
    for (name, start), gradient in zip(leaves.items(), gradients, strict=True):
        close(outcome.models["model"][name][0], start.detach() - 0.05 * gradient)


def test_a_client_without_a_previous_model_trains_as_in_fedavg(begun):
    ours, fedavg = (begun(algo, None, (1, 4))[2] for algo in ("moon", "fedavg"))
    close(ours.models["model"], fedavg.models["model"])


def test_a_client_contrasts_with_the_model_that_it_has_sent(begun):
    algorithm, _, outcome = begun("moon", None, (1, 4))
    sent = algorithm.upload(outcome)
    algorithm.keep(outcome)
    call = algorithm.begin([0, 4], algorithm.message([0, 4], 2), 2)
    assert call.constants["client"]["known"].tolist() == [[0], [1]]
    assert torch.equal(call.constants["previous"]["fc1.weight"][1], sent["fc1.weight"][1])
    assert set(strip_prefix("previous", algorithm.clients.initial)) == set(sent)


def test_passes_of_the_frozen_models_count(begun):
    algorithm, _, outcome = begun("moon", None, (1, 4), local_epochs=3)
    assert outcome.samples == 3 * (3 * 2 * 20)  # the trained model, the received and the previous one
    assert algorithm.meter.collect() == (0, 0)


def test_without_the_contrast_moon_is_fedavg(tiny, play):
    ours, fedavg = play(tiny("moon", {"mu": 0.0})), play(tiny("fedavg"))
    close(ours.history[-1], fedavg.history[-1])
    assert ours.summary["evaluated"] == "global"
