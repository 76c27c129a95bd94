"""FedAMP: who is like whom, the cloud models, and their pull."""

import math

import pytest
import torch
from equations import ONE_STEP, close, gradient_at

from pfl_benchmark.algorithms.fedamp import attention
from pfl_benchmark.engine.params import expand, strip_prefix


@pytest.mark.parametrize(("lam", "alpha"), [(0.0, 1.0), (3.0, 2.0)])
def test_a_step_is_pulled_to_the_cloud_model(lam, alpha, tiny, ready):
    """w ← w − η (∇ℓ(w) + (λ/α) (w − u)) from the client's own w."""
    algorithm = ready(tiny("fedamp", {"lam": lam, "alpha": alpha}, momentum=0.0, **ONE_STEP)).algorithm
    task, w = algorithm.task, algorithm.task.initial
    message = algorithm.message([2], 1)
    rng = torch.Generator().manual_seed(0)
    cloud = {name: t + 0.1 * torch.randn(t.shape, generator=rng) for name, t in w.items()}
    message.per_client.update({f"cloud.{name}": tensor[None] for name, tensor in cloud.items()})
    outcome = task.executor.train(algorithm.begin([2], message, 1))
    gradient = gradient_at(task, w, 2)
    expected = {n: t - 0.05 * (gradient[n] + lam / alpha * (t - cloud[n])) for n, t in w.items()}
    close({n: t[0] for n, t in outcome.models["model"].items()}, expected)


def test_fedamps_attention_falls_with_the_distance_and_leaves_the_rest_to_ones_own():
    distances = torch.tensor([[math.inf, 1.0, 2.0], [0.0, math.inf, 0.0]])
    weights = attention(distances, alpha=0.5, sigma=2.0)
    close(weights[0], torch.tensor([0, 0.25 * math.exp(-0.5), 0.25 * math.exp(-1.0)]))
    close(weights[1], torch.tensor([0.25, 0, 0.25]))
    close(attention(distances, alpha=8.0, sigma=2.0)[1], torch.tensor([0.5, 0, 0.5]))  # scaled to 1


def test_fedamps_cloud_models_are_those_mixtures(tiny, ready):
    algorithm = ready(tiny("fedamp", {"alpha": 0.3, "sigma": 5.0})).algorithm
    initial = algorithm.task.initial
    start = strip_prefix("cloud", algorithm.message([0, 1], 1).per_client)
    close(start, expand(initial, 2))
    shifts = torch.tensor([0.0, 0.01, 0.02])
    models = {n: t + shifts.view(-1, *[1] * t.dim()) for n, t in initial.items()}
    algorithm.clients.scatter([1, 3, 5], models)
    size = sum(tensor.numel() for tensor in initial.values())
    squares = (shifts - shifts[:, None]).square() * size
    weights = 0.3 * torch.exp(-squares / 5.0) / 5.0
    cloud = strip_prefix("cloud", algorithm.message([3], 2).per_client)
    own, others = shifts[1], shifts[[0, 2]]
    expected = own + (weights[1, [0, 2]] * (others - own)).sum()
    for name, tensor in cloud.items():
        close(tensor[0], initial[name] + expected)


def test_fedamps_distances_leave_running_statistics_out(tiny, ready):
    """Clients whose weights are alike have all of each other's model, and nothing pulls them."""
    losses = []
    for strength in (0.0, 10.0):
        algorithm = ready(tiny("fedamp", {"lam": strength}, network="resnet8-bn", **ONE_STEP)).algorithm
        initial, buffers = algorithm.task.initial, algorithm.network.buffers
        for client in (1, 4):
            own = {n: t + client * (n in buffers) for n, t in initial.items()}
            algorithm.clients.scatter([client], {n: t[None] for n, t in own.items()})
        message = algorithm.message([1], 2)
        close({n: message.per_client[f"cloud.{n}"][0] for n in buffers}, {n: initial[n] + 4 for n in buffers})
        losses.append(algorithm.task.executor.train(algorithm.begin([1], message, 2)).loss)
    close(losses[1], losses[0])
