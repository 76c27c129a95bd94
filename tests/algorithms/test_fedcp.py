"""FedCP: the gate, what a step descends, what is sent, and what clients are evaluated with."""

import pytest
import torch
import torch.nn.functional as F
from equations import EVERYONE, ONE_STEP, close

from pfl_benchmark.algorithms.fedcp import GATE, HEAD, discrepancy, shares
from pfl_benchmark.engine.sgd import step_stream
from pfl_benchmark.method import row

LAST = ("fc3.weight", "fc3.bias")


def gated(params, features, context, noise):
    """Shares [B, 2, d] of features [B, d], as the publication has them."""
    weight, bias, gain, offset = (params[name] for name in GATE)
    vector = context.sum(0)
    given = features * vector / vector.norm()
    hidden = F.relu(F.layer_norm(given @ weight.T + bias, bias.shape, gain, offset))
    return (hidden.view(len(features), 2, -1) + noise).softmax(1)


def mmd(x, y):
    """Mean over all pairs of the kernels of x and x, y and y, less twice that of x and y."""

    def kernel(a, b):
        squares = torch.cdist(a.double(), b.double()).square()
        return sum(torch.exp(-squares / (2 * width)) for width in (10, 15, 20, 50)).mean()

    return kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)


def test_the_discrepancy_is_the_mean_over_pairs_of_samples_that_there_are():
    x, y = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1)).mul(4).unbind()
    weights = torch.tensor([[0.25, 0.25, 0.25, 0.25, 0.0]])
    close(discrepancy(x[None], y[None], weights)[0].double(), mmd(x[:4], y[:4]))
    assert float(discrepancy(x[None], x[None], weights)) == pytest.approx(0, abs=1e-6)


def test_the_shares_of_a_feature_sum_to_one(begun):
    _, call, _ = begun("fedcp")
    params = call.models["model"].params
    features = torch.randn(6, 4, params[LAST[0]].shape[2])
    found = shares(params, features, params[LAST[0]])
    close(found.sum(2), torch.ones_like(features))
    for client in (0, 5):
        own = row(params, client)
        close(found[client], gated(own, features[client], own[LAST[0]], 0.0))


def test_a_step_trains_body_personal_head_and_gate_against_the_received_body(tiny, ready):
    algorithm = ready(tiny("fedcp", {"lam": 3.0}, **ONE_STEP)).algorithm
    task, lr, client = algorithm.task, algorithm.config.lr, 3
    moved = {name: tensor + 0.01 for name, tensor in algorithm.server.items() if name not in HEAD}
    algorithm.server = {**algorithm.server, **moved}
    call = algorithm.begin([client], algorithm.message([client], 2), 2)
    start = row(call.models["model"].params, 0)
    outcome = task.executor.train(call)
    (draw,) = call.phases[0].draws
    uniform = task.streams.get(step_stream(draw), 2, client)
    order = task.streams.get("batches-main", 2, client).permutation(20)
    x, y = task.data.inputs(client)[order], task.data.labels(client)[order]
    noise = -torch.log(-torch.log(torch.from_numpy(draw.rows(uniform, 20)).clamp(1e-10, 1 - 1e-7)))
    leaves = {n: t.detach().clone().requires_grad_() for n, t in start.items() if n not in HEAD}
    last = len(task.network.layers) - 1
    features = task.network.apply(leaves, x, stop=last).flatten(1)
    received = task.network.apply({**task.initial, **moved}, x, stop=last).flatten(1)
    personal, common = gated(leaves, features, start[LAST[0]], noise).unbind(1)
    logits = task.network.apply(leaves, features * personal, start=last)
    logits = logits + F.linear(features * common, start[HEAD[0]], start[HEAD[1]])
    loss = F.cross_entropy(logits, y) + 3.0 * mmd(features, received)
    slopes = dict(zip(leaves, torch.autograd.grad(loss, leaves.values()), strict=True))
    found = row(outcome.models["model"], 0)
    close({name: found[name] for name in leaves}, {n: start[n] - lr * slopes[n] for n in leaves})
    for name in HEAD:
        assert torch.equal(found[name], start[name])


def test_the_head_that_is_sent_is_half_the_received_one(begun):
    algorithm, _, outcome = begun("fedcp")
    sent, model = algorithm.upload(outcome), outcome.models["model"]
    for name, own in zip(HEAD, LAST, strict=True):
        close(sent[name], (algorithm.server[name] + model[own]) / 2)
        assert own not in sent
    assert {*GATE} <= sent.keys()


def test_clients_are_evaluated_without_noise(begun):
    algorithm, _, outcome = begun("fedcp")
    algorithm.keep(outcome)
    task, last = algorithm.task, len(algorithm.network.layers) - 1
    found = algorithm.scores(algorithm.members(EVERYONE), EVERYONE, "test")
    for client in (0, 4):
        own = {**task.initial, **algorithm.server}
        own |= {name: outcome.models["model"][name][client] for name in LAST}
        features = task.network.apply(own, task.data.inputs(client, "test"), stop=last).flatten(1)
        personal, common = gated(own, features, own[LAST[0]], 0.0).unbind(1)
        expected = F.linear(features * personal, own[LAST[0]], own[LAST[1]])
        close(found[client], expected + F.linear(features * common, own[HEAD[0]], own[HEAD[1]]))


def test_the_received_body_runs_on_every_batch_too(tiny, play):
    ours, fedavg = play(tiny("fedcp")), play(tiny("fedavg"))
    assert ours.summary["samples"] == 2 * fedavg.summary["samples"]
