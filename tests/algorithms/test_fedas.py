"""FedAS: alignment, Fisher traces and the mean weighted by them, by plain autograd."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from equations import ONE_STEP, close, gradient_at

RATE, LR = 0.2, 0.05


def test_a_participation_aligns_the_body_trains_everything_and_sums_the_trace(tiny, ready):
    """The client's own body differs from the received one, whose features are drawn to its class means."""
    algorithm = ready(tiny("fedas", {"align_rate": RATE}, momentum=0.0, **ONE_STEP)).algorithm
    task, network, generator = algorithm.task, algorithm.network, torch.Generator().manual_seed(0)
    own = {n: t + 0.1 * torch.randn(t.shape, generator=generator) for n, t in task.initial.items()}
    algorithm.clients.scatter([3], {name: tensor.unsqueeze(0) for name, tensor in own.items()})
    call = algorithm.begin([3], algorithm.message([3], 1), 1)
    outcome = task.executor.train(call)
    assert algorithm.meter.collect() == (20, 0)
    x, y = task.data.inputs(3), task.data.labels(3)
    prototypes = network.apply(own, x, stop=4)
    body = {n: t.clone().requires_grad_() for n, t in task.initial.items() if not n.startswith("fc3")}
    features = network.apply(body, x, stop=4)
    loss = sum(
        F.mse_loss(features[y == k], prototypes[y == k].mean(0).expand(20, -1)[y == k]) for k in y.unique()
    )
    gradients = torch.autograd.grad(loss, body.values())
    aligned = {n: t.detach() - RATE * g for (n, t), g in zip(body.items(), gradients, strict=True)}
    start = {**own, **aligned}  # the head is the client's own
    expected = {n: start[n] - LR * gradient for n, gradient in gradient_at(task, start, 3).items()}
    trained = {name: tensor[0] for name, tensor in outcome.models["model"].items()}
    trace = sum(gradient.square().sum() for gradient in gradient_at(task, expected, 3).values())
    assert float(trained.pop("fisher.trace")) == pytest.approx(float(trace), rel=1e-3)
    close({name: trained[name] for name in expected}, expected)
    algorithm.upload(outcome)
    algorithm.keep(outcome)
    (member,) = algorithm.members([3])
    close({name: tensor[0] for name, tensor in member.params.items()}, expected)


def test_the_trace_is_a_sum_over_batches(begun):
    _, _, whole = begun("fedas", None, (1,), lr=1e-12, batch_size=20)
    _, _, parts = begun("fedas", None, (1,), lr=1e-12, batch_size=5)
    traces = [float(outcome.models["model"]["fisher.trace"]) for outcome in (whole, parts)]
    assert traces[1] > 3 * traces[0]  # four batches, each of at least about the same norm


def test_the_trace_leaves_running_statistics_as_they_were(tiny, ready):
    algorithm = ready(tiny("fedas", network="resnet8-bn")).algorithm
    call = algorithm.begin([1], algorithm.message([1], 1), 1)
    found = []
    for phases in (call.phases, call.phases[:-1]):
        models = algorithm.task.executor.train(replace(call, phases=phases)).models["model"]
        found.append({name: models[name] for name in algorithm.network.buffers})
    close(*found)


def test_bodies_are_averaged_by_their_traces(tiny, ready):
    aggregator = ready(tiny("fedas")).algorithm.aggregator()
    traces = torch.tensor([[1.0], [3.0], [0.0]])
    aggregator.add(
        [0, 2, 5], {"a": torch.tensor([[4.0], [8.0], [9.0]]), "fisher.trace": traces}, torch.ones(3)
    )
    assert aggregator.value()["a"].item() == pytest.approx((4 + 3 * 8) / 4)


def test_a_participation_sends_bodies_and_a_number(tiny, play):
    seen = []
    played = play(tiny("fedas"), watch=lambda algorithm, line: seen.append(line))
    network = played.algorithm.network
    whole, body = 4 * network.count(), 4 * network.count(network.names[:-1])
    assert seen[0]["bytes_down"] == 3 * (body + whole)  # newcomers receive θ_0 besides
    assert seen[0]["bytes_up"] == 3 * (body + 4)
    assert seen[0]["samples"] == 3 * 20 * 4  # prototypes, alignment, training, trace
    assert seen[-1]["bytes_broadcast"] == 0
