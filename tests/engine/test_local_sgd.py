"""Local training: what the engine computes, against plain PyTorch written out independently."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from plain_digits import PlainDigits

from pfl_benchmark.algorithms.ditto import Pull
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.engine.local import LocalCall, Phase, StackedModel
from pfl_benchmark.engine.params import expand
from pfl_benchmark.engine.sgd import FORWARD_BATCH, LocalWork, epoch_order, forward
from pfl_benchmark.errors import UserError

BODY, HEAD = ("conv1", "conv2", "fc1", "fc2"), ("fc3",)
EVERYTHING = BODY + HEAD
CLIENT, ROUND = 4, 7


def plain_sgd(params, data, phases, streams, batch=8, momentum=0.0, decay=0.0, weights=None):
    """Train with torch.optim.SGD; `phases` are tuples (rates by layer, epochs). Returns the parameters."""
    net = PlainDigits(params)
    x, y = data.inputs(CLIENT), data.labels(CLIENT)
    order = streams.get("batches-main", ROUND, CLIENT)
    for rates, epochs in phases:
        groups = []
        for layer, rate in rates.items():
            module = getattr(net, layer)
            groups.append({"params": [module.weight], "lr": rate, "weight_decay": decay})
            groups.append({"params": [module.bias], "lr": rate, "weight_decay": 0.0})
        optimiser = torch.optim.SGD(groups, momentum=momentum)
        for _ in range(epochs):
            permutation = order.permutation(len(y))
            for start in range(0, len(y), batch):
                chosen = permutation[start : start + batch]
                losses = F.cross_entropy(net(x[chosen]), y[chosen], reduction="none")
                if weights is not None:
                    losses = losses * weights[chosen]
                net.zero_grad()
                (losses.sum() / len(chosen)).backward()
                optimiser.step()
    return {name: tensor.detach() for name, tensor in net.state_dict().items()}


@pytest.fixture
def task(tiny, ready):
    """The tiny task; ``task(momentum=0.9)`` changes its configuration."""

    def make(executor="loop", **changes):
        return ready(tiny("fedavg", **changes), executor).prepared.task

    return make


def train(task, phases, clients=(CLIENT,), weights=None, params=None, chances=None):
    start = expand(params or task.initial, len(clients))
    model = StackedModel(task.network, start)
    return task.executor.train(LocalCall(ROUND, list(clients), {"model": model}, phases, weights, chances))


def trained(task, phases, **kwargs):
    """Parameters of one client after training."""
    return {name: t[0] for name, t in train(task, phases, **kwargs).models["model"].items()}


# Against torch.optim.SGD


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_training_is_torchs_sgd(task, momentum, decay, executor):
    task = task(executor, momentum=momentum, weight_decay=decay)
    ours = trained(task, [Phase.of(EVERYTHING, 0.05, 3)])
    rates = dict.fromkeys(EVERYTHING, 0.05)
    theirs = plain_sgd(task.initial, task.data, [(rates, 3)], task.streams, momentum=momentum, decay=decay)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    task.executor.close()


@pytest.mark.parametrize(
    "phases",
    [
        [({"fc3": 0.1}, 3)],  # only the head: the layers before it are run once
        [({"conv1": 0.1}, 2)],
        [({"fc1": 0.1, "fc3": 0.02}, 2)],
        [({"conv1": 0.05, "conv2": 0.05, "fc1": 0.01, "fc2": 0.2, "fc3": 0.02}, 2)],
        [({"fc3": 0.1}, 2), ({"conv1": 0.05, "conv2": 0.05, "fc1": 0.05, "fc2": 0.05}, 2)],
        [({"fc2": 0.1, "fc3": 0.1}, 1), ({"fc2": 0.1, "fc3": 0.1}, 1)],  # the second has a fresh momentum
    ],
    ids=lambda phases: "+".join(",".join(rates) for rates, _ in phases),
)
def test_frozen_layers_learning_rates_and_phases(task, phases, differing):
    task = task(momentum=0.5, weight_decay=0.01)
    ours = trained(task, [Phase(rates, epochs) for rates, epochs in phases])
    theirs = plain_sgd(task.initial, task.data, phases, task.streams, momentum=0.5, decay=0.01)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    touched = {layer for rates, _ in phases for layer in rates}
    assert {name.split(".")[0] for name in differing(ours, task.initial)} == touched


def test_momentum_is_fresh_in_every_phase(task, differing):
    task = task(momentum=0.9)
    once = trained(task, [Phase.of(EVERYTHING, 0.05, 2)])
    twice = trained(task, [Phase.of(EVERYTHING, 0.05, 1)] * 2)
    assert differing(once, twice)


# Gradients


def test_gradients_of_frozen_layers_are_not_computed(task, monkeypatch):
    asked, grad = [], torch.autograd.grad

    def watched(loss, leaves, *args, **kwargs):
        asked.append([tuple(leaf.shape) for leaf in leaves])
        return grad(loss, leaves, *args, **kwargs)

    monkeypatch.setattr(torch.autograd, "grad", watched)
    train(task(), [Phase.of(HEAD, 0.1, 2), Phase.of(BODY, 0.1, 1)])
    head = [(10, 32), (10,)]
    body = [(16, 1, 3, 3), (16,), (32, 16, 3, 3), (32,), (64, 128), (64,), (32, 64), (32,)]
    assert asked == [head] * 6 + [body] * 3  # three steps an epoch


def test_the_start_of_a_call_is_left_as_it_was(task, differing):
    task = task()
    before = {name: tensor.clone() for name, tensor in task.initial.items()}
    train(task, [Phase.of(EVERYTHING, 0.5, 1)], clients=(0, 1, 2))
    assert differing(task.initial, before) == []
    assert not any(tensor.requires_grad for tensor in task.initial.values())


# Sample weights


def test_weights_of_one_are_no_weights(task, differing):
    task, phases = task(), [Phase.of(EVERYTHING, 0.05, 2)]
    assert differing(trained(task, phases), trained(task, phases, weights=[torch.ones(20)])) == []


def test_sample_weights_multiply_the_losses(task):
    task = task(momentum=0.5)
    weights = torch.linspace(0.1, 1.9, 20)
    ours = trained(task, [Phase.of(EVERYTHING, 0.05, 2)], weights=[weights])
    rates = dict.fromkeys(EVERYTHING, 0.05)
    theirs = plain_sgd(task.initial, task.data, [(rates, 2)], task.streams, momentum=0.5, weights=weights)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_batch_is_not_divided_by_its_weights(task):
    """Doubling all weights doubles the step: dividing by Σω would undo it."""
    task = task(batch_size=20, momentum=0.0)
    phases = [Phase.of(EVERYTHING, 0.05, 1)]
    once, twice = (trained(task, phases, weights=[torch.full((20,), w)]) for w in (1.0, 2.0))
    for name, start in task.initial.items():
        torch.testing.assert_close(twice[name] - start, 2 * (once[name] - start), rtol=1e-3, atol=1e-6)


# Drawing by chances


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_sample_without_a_chance_does_not_matter(task, executor, differing):
    """With equal chances for the rest, training is on a bootstrap sample of the rest."""
    task = task(executor)
    chances = torch.ones(20)
    chances[[3, 11]] = 0
    phases = [Phase.of(EVERYTHING, 0.05, 2)]
    plain, without = trained(task, phases), trained(task, phases, chances=[chances])
    assert differing(plain, without) == list(plain)
    # Weights of the losses of samples that are never drawn change nothing, others do.
    never, drawn = chances + 7 * (1 - chances), 5 * chances + (1 - chances)
    same = trained(task, phases, chances=[chances], weights=[never])
    torch.testing.assert_close(same, without, rtol=0, atol=1e-6)
    assert differing(trained(task, phases, chances=[chances], weights=[drawn]), without) == list(plain)


def test_samples_are_drawn_in_proportion_to_their_chances():
    chances = torch.tensor([0.0, 1.0, 2.0, 5.0])
    rng = np.random.default_rng(0)
    drawn = np.concatenate([epoch_order(rng, 4, chances) for _ in range(5_000)])
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    assert shares[0] == 0
    assert shares == pytest.approx([0, 1 / 8, 2 / 8, 5 / 8], abs=0.015)
    assert sorted(epoch_order(rng, 9)) == list(range(9))


# Masks


def test_masked_entries_stay_zero_under_momentum_and_weight_decay(task):
    task = task(momentum=0.9, weight_decay=0.1)
    mask = (torch.from_numpy(np.random.default_rng(0).random((32, 64))) > 0.4).float()
    start = {**task.initial, "fc2.weight": task.initial["fc2.weight"] * mask}
    phase = dataclasses.replace(Phase.of(EVERYTHING, 0.1, 3), masks={"fc2.weight": mask})
    after = trained(task, [phase], params=start)
    assert (after["fc2.weight"][mask == 0] == 0).all()
    assert (after["fc2.weight"][mask == 1] != start["fc2.weight"][mask == 1]).float().mean() > 0.9


def test_a_mask_of_ones_is_no_mask(task, differing):
    task, phase = task(momentum=0.9), Phase.of(EVERYTHING, 0.1, 1)
    masked = dataclasses.replace(phase, masks={"fc2.weight": torch.ones(32, 64)})
    assert differing(trained(task, [phase]), trained(task, [masked])) == []


# The proximal pull


def anchored(phase, strength, anchor):
    return dataclasses.replace(phase, rule=Pull(strength), constants={"anchor": anchor})


def test_without_gradient_a_full_pull_jumps_to_the_anchor(task):
    task = task(batch_size=20)
    anchor = {name: tensor + 1 for name, tensor in task.initial.items()}
    phase = anchored(Phase.of(EVERYTHING, 0.01, 1), 100.0, anchor)  # λη = 1, one step
    after = trained(task, [phase], weights=[torch.zeros(20)])
    torch.testing.assert_close(after, anchor, rtol=0, atol=1e-6)


def test_the_pull_stays_out_of_the_momentum_and_uses_the_old_value(task):
    """Without gradient: w − a shrinks by 1 − λη each step; momentum would make it overshoot."""
    task = task(momentum=0.9)
    anchor = {name: torch.zeros_like(tensor) for name, tensor in task.initial.items()}
    phase = anchored(Phase.of(EVERYTHING, 0.1, 2), 2.0, anchor)  # six steps
    after = trained(task, [phase], weights=[torch.zeros(20)])
    expected = {name: 0.8**6 * tensor for name, tensor in task.initial.items()}
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-6)


def test_no_pull_is_plain_training(task, differing):
    task, phase = task(momentum=0.5), Phase.of(EVERYTHING, 0.05, 2)
    pulled = anchored(phase, 0.0, {name: tensor + 1 for name, tensor in task.initial.items()})
    assert differing(trained(task, [phase]), trained(task, [pulled])) == []


# What comes back


def test_accounting_and_the_order_of_clients(task, differing):
    task, phases = task(), [Phase.of(EVERYTHING, 0.05, 2)]
    outcome = train(task, phases, clients=(3, 0, 5))
    assert outcome.clients == [3, 0, 5]
    assert outcome.samples == 3 * 2 * 20
    assert outcome.steps == 3 * 2 * 3
    assert outcome.features == []
    for position, client in enumerate(outcome.clients):
        alone = train(task, phases, clients=(client,))
        row = {name: tensor[position] for name, tensor in outcome.models["model"].items()}
        assert differing(row, {name: t[0] for name, t in alone.models["model"].items()}) == []
        assert outcome.loss[position] == alone.loss[0]


def test_the_reported_loss_is_that_of_the_last_epoch(task):
    task = task(batch_size=20)
    inputs, labels = task.data.inputs(CLIENT), task.data.labels(CLIENT)
    before_last = trained(task, [Phase.of(EVERYTHING, 0.05, 2)])
    outcome = train(task, [Phase.of(EVERYTHING, 0.05, 3)])
    expected = F.cross_entropy(task.network.apply(before_last, inputs), labels)
    assert outcome.loss[0] == pytest.approx(expected.item(), rel=1e-4)


def test_without_phases_nothing_happens(task, differing):
    task = task()
    for phases in ([], [Phase.of(EVERYTHING, 0.05, 0)]):
        outcome = train(task, phases)
        assert differing({n: t[0] for n, t in outcome.models["model"].items()}, task.initial) == []
        assert (outcome.samples, outcome.steps, outcome.loss.tolist()) == (0, 0, [0.0])


def test_a_phase_that_trains_no_layer_leaves_everything(task, differing):
    task = task()
    assert differing(trained(task, [Phase.of((), 0.05, 1)]), task.initial) == []


@pytest.mark.parametrize("rates", [EVERYTHING, BODY, HEAD])
def test_collected_features_are_the_inputs_of_the_layer(task, rates):
    task = task(lr=1e-12)
    phase = dataclasses.replace(Phase.of(rates, 1e-12, 2), collect="fc3")  # hardly moves
    ((features, labels),) = train(task, [phase]).features
    assert features.shape == (40, 32)
    order = task.streams.get("batches-main", ROUND, CLIENT)
    permutation = np.concatenate([order.permutation(20) for _ in range(2)])
    assert torch.equal(labels, task.data.labels(CLIENT)[permutation])
    inputs = task.data.inputs(CLIENT)[permutation]
    torch.testing.assert_close(features, task.network.apply(task.initial, inputs, stop=4))


# Streams


def test_phases_on_one_stream_continue_it_and_others_have_their_own(task, differing):
    task = task(momentum=0.0)
    one, other = Phase.of(EVERYTHING, 0.05, 1), Phase.of(EVERYTHING, 0.05, 1)
    personal = dataclasses.replace(other, stream="batches-personal")
    together = trained(task, [Phase.of(EVERYTHING, 0.05, 2)])
    assert differing(trained(task, [one, other]), together) == []  # without momentum a border is no border
    assert differing(trained(task, [one, personal]), together)


def test_rounds_and_clients_have_their_own_batch_orders(task, differing):
    task, phases = task(), [Phase.of(EVERYTHING, 0.05, 1)]
    model = StackedModel(task.network, expand(task.initial, 1))
    here, later = (
        task.executor.train(LocalCall(number, [CLIENT], {"model": model}, phases)) for number in (1, 2)
    )
    assert differing(here.models["model"], later.models["model"])


# Names


@pytest.mark.parametrize("name", ["fc1.weight", "fc1.gain"])
def test_tensors_beside_the_network_may_not_take_a_layers_name(task, name):
    task = task()
    params = {**expand(task.initial, 2), name: torch.zeros(2, 7)}
    with pytest.raises(UserError, match=f"'{name}' has shape .* the network's layer 'fc1'"):
        StackedModel(task.network, params)


# Dropout and augmentation


@pytest.mark.parametrize("setting", [{"dropout": 0.5}, {"augment": True}], ids=["dropout", "augment"])
def test_random_training_is_reproducible_and_differs_from_plain(task, setting, differing):
    phases = [Phase.of(EVERYTHING, 0.05, 2)]
    plain, first, again = (trained(task(**options), phases) for options in ({}, setting, setting))
    assert differing(first, again) == []
    assert differing(first, plain)
    for name in set(EXECUTORS) - {"loop"}:
        other = task(name, **setting)
        torch.testing.assert_close(trained(other, phases), first, rtol=1e-4, atol=1e-5)
        other.executor.close()


@pytest.mark.parametrize(
    ("setting", "random"),
    [({}, False), ({"dropout": 0.5}, True), ({"augment": True}, True)],
    ids=["plain", "dropout", "augment"],
)
def test_a_frozen_body_is_still_random(task, setting, random):
    """The shortcut of running frozen layers once must not freeze their randomness."""
    task = task(**setting)
    phase = dataclasses.replace(Phase.of(HEAD, 1e-12, 2), collect="fc3")
    ((features, _),) = train(task, [phase]).features
    first, second = (epoch.sum(0) for epoch in features.split(20))  # whatever the order of the samples
    assert ((first - second).abs().max() > 0.01) == random


def test_dropout_masks_are_scaled_and_have_their_rate(task):
    work = task().executor._work
    mask = work._dropout(ROUND, CLIENT)((400, 50), 0.2)
    assert set(mask.unique().tolist()) == {0.0, 1.25}
    assert mask.mean() == pytest.approx(1, abs=0.02)
    again, other = work._dropout(ROUND, CLIENT), work._dropout(ROUND, CLIENT + 1)
    assert torch.equal(again((400, 50), 0.2), mask)
    assert not torch.equal(other((400, 50), 0.2), mask)


def test_forward_passes_are_in_evaluation_mode(task):
    random, plain = task(dropout=0.5, augment=True), task()
    for part in ("train", "test"):
        (a,), (b,) = (
            t.executor.forward(t.network, expand(t.initial, 1), [CLIENT], part) for t in (random, plain)
        )
        assert torch.equal(a, b)


def test_forward_up_to_a_layer(task):
    task = task()
    (features,) = task.executor.forward(task.network, expand(task.initial, 1), [CLIENT], "test", stop=4)
    expected = task.network.apply(task.initial, task.data.inputs(CLIENT, "test"), stop=4)
    torch.testing.assert_close(features, expected)


# Together, and beyond one batch


def test_passes_in_pieces_are_one_pass(task):
    task = task()
    x = task.data.encode(task.data.stored()[0][: 2 * FORWARD_BATCH + 5])
    torch.testing.assert_close(forward(task.network, task.initial, x), task.network.apply(task.initial, x))


@pytest.mark.parametrize("channels", [1, 3])
def test_convolutions_keep_channels_last(channels):
    """What comes out of the first one is in the format in which pooling is fast, for grey images, too."""
    layout = LocalWork(None, None, None, channels_last=True).layout
    images, kernels = layout(torch.rand(4, channels, 8, 8)), layout(torch.rand(5, channels, 3, 3))
    assert F.conv2d(images, kernels).is_contiguous(memory_format=torch.channels_last)
