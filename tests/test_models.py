"""The networks: sizes that the paper's transmitted shares confirm, split points, and what layers compute."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pfl_benchmark.errors import UserError
from pfl_benchmark.models import (
    CELLS,
    NETWORKS,
    Conv,
    Linear,
    LowRank,
    Network,
    Recurrent,
    build_network,
    cnn,
)
from pfl_benchmark.models.catalogue import adapt
from pfl_benchmark.models.sequences import Conv1d, Embedding

IMAGES = {  # channels, height, width; classes
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
    "emnist": ((1, 28, 28), 26),
    "fmnist": ((1, 28, 28), 10),
    "letters": ((1, 28, 28), 26),
    "digits": ((1, 8, 8), 10),
}

# Parameters of conv1, conv2, fc1, fc2, fc3 (FedRep models/Nets.py).
COUNTS = {
    "cifar10": (4_864, 102_464, 192_120, 7_744, 650),
    "cifar100": (4_864, 204_928, 819_456, 32_896, 12_900),
    "emnist": (1_664, 102_464, 131_200, 8_256, 1_690),
}
TOTALS = {"cifar10": 307_842, "cifar100": 1_075_044, "emnist": 245_274}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(params=sorted(NETWORKS))
def network(request):
    return NETWORKS[request.param]


# Sizes and names


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts(name):
    network = NETWORKS[name]
    assert tuple(network.count([layer]) for layer in network.names) == COUNTS[name]
    assert network.count() == TOTALS[name]


def test_shares_of_cifar100_that_the_paper_prints():
    network = NETWORKS["cifar100"]
    convolutions = network.count(["conv1", "conv2"])
    all_but_last, total = network.count(network.names[:-1]), network.count()
    assert round(100 * all_but_last / total, 1) == 98.8
    assert round(100 * convolutions / total, 1) == 19.5
    pair = network.with_layers({"fc1": LowRank("fc1", 3200, 256, rank=200)})
    assert round(100 * pair.count(["conv1", "conv2", "fc1"]) / total, 1) == 83.8


@pytest.mark.parametrize("name", IMAGES)
def test_logits_of_every_image_network(name, rng):
    network, (shape, classes) = NETWORKS[name], IMAGES[name]
    logits = network.apply(network.init(rng), torch.rand(3, *shape))
    assert logits.shape == (3, classes)
    assert (logits < 0).any()  # no ReLU after the last layer


@pytest.mark.parametrize("name", IMAGES)
def test_split_points_of_the_image_networks(name):
    assert NETWORKS[name].names == ("conv1", "conv2", "fc1", "fc2", "fc3")
    assert NETWORKS[name].splittable == ("fc1", "fc2", "fc3")


def test_index_layer_and_tail(network):
    names, size = network.names, len(network.names)
    for position, name in enumerate(names):
        assert network.index(name) == position
        assert network.layer(name).name == name
    assert [network.tail(count) for count in range(size + 1)] == [names[size - c :] for c in range(size + 1)]


def test_keys_shapes_and_counts_belong_together(network, rng):
    params = network.init(rng)
    assert list(params) == network.keys()
    assert {name: tuple(tensor.shape) for name, tensor in params.items()} == network.shapes()
    assert sum(tensor.numel() for tensor in params.values()) == network.count()
    assert network.keys([]) == []
    assert network.count([]) == 0


def test_keys_come_in_the_order_of_the_network():
    expected = ["conv1.weight", "conv1.bias", "fc3.weight", "fc3.bias"]
    assert NETWORKS["digits"].keys(["fc3", "conv1"]) == expected


# Initial values


def test_initial_values_follow_pytorchs_default_law(network, rng):
    params = network.init(rng)
    for layer in network.layers:
        bound = 1 / math.sqrt(layer.fan_in)
        for name in layer.shapes():
            values = params[name]
            assert values.dtype == torch.float32
            if isinstance(layer, Embedding):
                assert values.std() == pytest.approx(1, rel=0.2)
                continue
            assert values.abs().max() <= bound
            if values.numel() > 100:
                assert values.abs().max() > 0.9 * bound
                # A uniform partitioner on ±bound has this spread.
                assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.2)


def test_init_bounds_are_pytorchs():
    torch.manual_seed(0)
    for ours, theirs in (
        (Linear("fc1", 50, 400), torch.nn.Linear(50, 400)),
        (Conv("conv1", 3, 64), torch.nn.Conv2d(3, 64, 5)),
        (Recurrent("rnn", 300, 128), torch.nn.LSTM(300, 128)),
        (Recurrent("rnn", 50, 90, "gru"), torch.nn.GRU(50, 90)),
    ):
        drawn = Network((ours,)).init(np.random.default_rng(0))
        largest = [max(tensor.abs().max().item() for tensor in tensors) for tensors in (
            drawn.values(), theirs.parameters()
        )]  # fmt: skip
        assert largest[0] == pytest.approx(largest[1], rel=0.02)


def test_initial_values_are_those_of_the_generator(network):
    a, b, c = (network.init(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not any(torch.equal(a[name], c[name]) for name in a)


# What layers compute


def test_pooling_before_relu_changes_nothing(rng):
    layer = Conv("conv1", 3, 8)
    params, x = Network((layer,)).init(rng), torch.randn(4, 3, 12, 12)
    convolved = F.conv2d(x, params["conv1.weight"], params["conv1.bias"])
    assert torch.equal(layer.apply(params, x), F.max_pool2d(F.relu(convolved), 2))


@pytest.mark.parametrize("activation", [True, False])
def test_a_low_rank_layer_is_the_linear_layer_of_its_product(activation, rng):
    pair = LowRank("fc1", 12, 7, activation=activation, rank=3)
    whole = Linear("fc1", 12, 7, activation=activation)
    params = Network((pair,)).init(rng)
    assert {name: tuple(t.shape) for name, t in params.items()} == {
        "fc1.first": (3, 12),
        "fc1.second": (7, 3),
        "fc1.bias": (7,),
    }
    product = {"fc1.weight": params["fc1.second"] @ params["fc1.first"], "fc1.bias": params["fc1.bias"]}
    x = torch.randn(5, 3, 2, 2)  # is flattened
    torch.testing.assert_close(pair.apply(params, x), whole.apply(product, x))


@pytest.mark.parametrize("name", IMAGES)
def test_running_a_network_in_two_parts(name, rng):
    network = NETWORKS[name]
    params, x = network.init(rng), torch.rand(2, *IMAGES[name][0])
    for cut in range(len(network.layers) + 1):
        torch.testing.assert_close(
            network.apply(params, network.apply(params, x, stop=cut), start=cut), network.apply(params, x)
        )


def test_with_layers_replaces_only_what_is_named():
    network = NETWORKS["digits"]
    changed = network.with_layers({"fc2": LowRank("fc2", 64, 32, rank=2)})
    assert changed.names == network.names
    assert [a is b for a, b in zip(changed.layers, network.layers, strict=True)] == [True] * 3 + [False, True]
    assert isinstance(changed.layer("fc2"), LowRank)


def test_sizes_follow_from_kernel_and_padding():
    network = cnn((2, 20, 12), 4, (3, 5), (7, 6), kernel=3, padding=0)
    # 20 -> 18 -> 9 -> 7 -> 3 and 12 -> 10 -> 5 -> 3 -> 1
    assert network.shapes()["fc1.weight"] == (7, 5 * 3 * 1)
    assert network.apply(network.init(np.random.default_rng(0)), torch.rand(1, 2, 20, 12)).shape == (1, 4)


# Dropout


def test_dropout_sits_behind_fc2_and_only_while_training(rng):
    plain, dropping = build_network("digits"), build_network("digits", 0.5)
    assert [layer.name for layer in dropping.layers if layer.drops] == ["fc2"]
    assert not any(layer.drops for layer in plain.layers)
    params, x = plain.init(rng), torch.rand(4, 1, 8, 8)
    assert torch.equal(dropping.apply(params, x), plain.apply(params, x))

    asked = []

    def nothing_kept(shape, rate):
        asked.append((shape, rate))
        return torch.zeros(shape)

    logits = dropping.apply(params, x, dropout=nothing_kept)
    assert asked == [((4, 32), 0.5)]
    assert torch.equal(logits, params["fc3.bias"].expand(4, 10))
    assert torch.equal(plain.apply(params, x, dropout=nothing_kept), plain.apply(params, x))


# Layers for sequences


def stacked_and_one_by_one(layer, x, rng):
    """Outputs and gradients of three models at once, and of each alone."""
    params = [Network((layer,)).init(rng) for _ in range(3)]
    together = {name: torch.stack([own[name] for own in params]).requires_grad_() for name in params[0]}
    out = layer.apply_stacked(together, x)
    single = [{name: tensor.clone().requires_grad_() for name, tensor in own.items()} for own in params]
    alone = torch.stack([layer.apply(own, one) for own, one in zip(single, x, strict=True)])
    grads = torch.autograd.grad(out.square().sum(), list(together.values()))
    leaves = [tensor for own in single for tensor in own.values()]
    found = torch.autograd.grad(alone.square().sum(), leaves)
    expected = [torch.stack(found[k :: len(together)]) for k in range(len(together))]
    return (out, *grads), (alone, *expected)


def test_convolutions_over_time(rng):
    layer = Conv1d("conv", 3, 4, kernel=5)
    x = torch.randn(3, 2, 3, 20, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(*stacked_and_one_by_one(layer, x, rng))
    params = Network((layer,)).init(rng)
    conv = torch.nn.Conv1d(3, 4, 5)
    conv.load_state_dict({name.removeprefix("conv."): tensor for name, tensor in params.items()})
    theirs = torch.nn.functional.max_pool1d(conv(x[0]).relu(), 2)
    torch.testing.assert_close(layer.apply(params, x[0]), theirs.detach())


def test_embeddings(rng):
    layer = Embedding("embedding", 7, 4)
    x = torch.randint(0, 7, (3, 2, 9), generator=torch.Generator().manual_seed(0)).float()
    torch.testing.assert_close(*stacked_and_one_by_one(layer, x, rng))
    params = Network((layer,)).init(rng)
    out = layer.apply(params, x[0])
    assert torch.equal(out[..., :-1], params["embedding.weight"][x[0].long()])
    assert (out[..., -1] == 1).all()


@pytest.mark.parametrize("cell", CELLS)
def test_a_recurrent_layer_may_give_all_of_its_states(cell, rng):
    whole, last = Recurrent("rnn", 6, 4, cell, whole=True), Recurrent("rnn", 6, 4, cell)
    params, x = Network((last,)).init(rng), sequences(6)
    states = whole.apply(params, x)
    assert torch.equal(states[..., -1], x[..., -1])
    for state, length, expected in zip(states, LENGTHS, last.apply(params, x), strict=True):
        if length:
            assert torch.equal(state[length - 1, :-1], expected)
    torch.testing.assert_close(*stacked_and_one_by_one(whole, x.expand(3, *x.shape), rng))


# Recurrent layers

LENGTHS = [5, 1, 7, 3, 0]
TEXT = ["sent140", "synth-tweets"]


def sequences(width, steps=7, lengths=LENGTHS):
    """Sequences of different lengths, and their validity; behind the end stands what is not read."""
    x = torch.randn(len(lengths), steps, width + 1, generator=torch.Generator().manual_seed(0))
    x[..., -1] = torch.tensor([[step < length for step in range(steps)] for length in lengths]).float()
    return x


def theirs(cell, width, units, params):
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell](width, units, batch_first=True)
    for name, parameter in module.named_parameters():
        parameter.data = params[f"rnn.{name.removesuffix('_l0')}"].clone()
    return module


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("device", "gradients", "learns"), [
    ("meta", True, True), ("meta", False, False), ("cpu", True, False),
])  # fmt: skip
def test_cudnn_is_told_when_gradients_will_be_asked_for(cell, device, gradients, learns, monkeypatch):
    """Its backward pass exists in training mode alone."""
    layer, asked, network = Recurrent("rnn", 6, 4, cell), [], getattr(torch, cell)

    def watched(x, start, params, biases, layers, dropout, train, *more):
        asked.append(train)
        return network(x, start, params, biases, layers, dropout, train, *more)

    monkeypatch.setattr(torch, cell, watched)
    params = {name: torch.zeros(shape, device=device) for name, shape in layer.shapes().items()}
    with torch.set_grad_enabled(gradients):
        layer.apply(params, torch.zeros(2, 7, 7, device=device))
    assert asked == [learns]


def test_counts_of_the_text_network():
    network = NETWORKS["sent140"]
    assert network.names == ("rnn", "fc1", "fc2", "fc3")
    assert network.splittable == ("fc1", "fc2", "fc3")
    counts = [network.count([name]) for name in network.names]
    assert (counts, network.count()) == ([220_160, 33_024, 32_896, 258], 286_338)


@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_layers_are_pytorchs(cell, rng):
    layer = Recurrent("rnn", 6, 4, cell)
    params, x = Network((layer,)).init(rng), sequences(6)
    module = theirs(cell, 6, 4, params)
    assert {f"rnn.{n.removesuffix('_l0')}": tuple(p.shape) for n, p in module.named_parameters()} == (
        layer.shapes()
    )
    with torch.no_grad():
        last = [
            module(one[None, :length, :-1])[0][0, -1] for one, length in zip(x, LENGTHS[:-1], strict=False)
        ]
    expected = torch.stack([*last, torch.zeros(4)])  # nothing was read: the state is still 0
    torch.testing.assert_close(layer.apply(params, x), expected)
    stacked = {name: tensor.expand(2, *tensor.shape) for name, tensor in params.items()}
    torch.testing.assert_close(
        layer.apply_stacked(stacked, x.expand(2, *x.shape)), expected.expand(2, *expected.shape)
    )


@pytest.mark.parametrize("cell", CELLS)
def test_gradients_of_recurrent_layers(cell, rng):
    layer, x = Recurrent("rnn", 3, 5, cell), sequences(3)
    params = {name: t.requires_grad_() for name, t in Network((layer,)).init(rng).items()}
    ours = torch.autograd.grad(layer.apply(params, x).square().sum(), list(params.values()))
    stacked = {name: t.detach().unsqueeze(0).requires_grad_() for name, t in params.items()}
    loss = layer.apply_stacked(stacked, x.unsqueeze(0)).square().sum()
    for a, b in zip(ours, torch.autograd.grad(loss, list(stacked.values())), strict=True):
        assert a.any()
        torch.testing.assert_close(a, b[0])


@pytest.mark.parametrize("name", TEXT)
@pytest.mark.parametrize("cell", CELLS)
def test_text_networks_read_nothing_behind_the_end(name, cell, rng):
    network = build_network(name, cell=cell, width=9)
    assert network.shapes()["rnn.weight_ih"][1] == 9
    params, x = network.init(rng), sequences(9)
    logits = network.apply(params, x)
    assert logits.shape == (len(LENGTHS), 2)
    other = x.clone()
    other[..., :-1] += 5 * (1 - other[..., -1:])
    torch.testing.assert_close(network.apply(params, other), logits)
    shorter = torch.cat([x, torch.zeros(len(x), 4, 10)], dim=1)  # more room, the same texts
    torch.testing.assert_close(network.apply(params, shorter), logits)
    known = x.clone()
    known[:, 0, :-1] += 1
    assert (network.apply(params, known) != logits).any(dim=1).tolist() == [n > 0 for n in LENGTHS]


def test_dropout_of_the_text_network_sits_behind_fc2():
    assert [layer.name for layer in build_network("sent140", 0.5).layers if layer.drops] == ["fc2"]


def test_dropout_needs_the_layer_that_it_goes_behind(monkeypatch):
    """It would be on record, and do nothing."""
    plain = Network((Linear("all", 64, 10, activation=False),))
    monkeypatch.setitem(NETWORKS, "plain", plain)
    assert build_network("plain") == plain
    with pytest.raises(
        UserError, match=r"--dropout 0.5 goes behind .* fc2.* 'plain' has none \(all\); drop it"
    ):
        build_network("plain", dropout=0.5)


@pytest.mark.parametrize("names", [("layer1.0", "fc"), ("fc", "fc")])
def test_layer_names_are_the_first_part_of_tensor_names(names):
    with pytest.raises(ValueError, match="expected one without a dot, and each only once"):
        Network(tuple(Linear(name, 4, 4) for name in names))


def test_a_layer_may_draw_its_own_beginning(rng):
    class Gain(Linear):
        """Begins as a normalisation does."""

        def draw(self, rng):
            return {key: np.ones(shape, np.float32) for key, shape in self.shapes().items()}

    params = Network((Linear("fc1", 4, 3), Gain("gain", 3, 3), Linear("fc2", 3, 2))).init(rng)
    assert (params["gain.weight"] == 1).all()
    plain = Network((Linear("fc1", 4, 3), Linear("fc2", 3, 2))).init(np.random.default_rng(0))
    assert all((params[key] == values).all() for key, values in plain.items())


def test_what_a_network_of_ones_own_has_stays_at_the_defaults():
    layers = (Recurrent("rnn", 16, 8, "gru"), Linear("fc2", 8, 8, dropout=0.5), Linear("fc3", 8, 2))
    network = Network(layers)
    assert adapt(network, "mine").layers == layers
    changed = adapt(network, "mine", dropout=0.1).layers
    assert (changed[0].cell, changed[1].dropout) == ("gru", 0.1)
