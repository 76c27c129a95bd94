"""The architectures, and networks made of any module."""

import math
import re
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from pfl_benchmark.datasets.vision import import_torchvision
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import (
    ARCHITECTURES,
    NETWORKS,
    OWN,
    Architecture,
    Linear,
    LowRank,
    network_from_module,
    register_network,
)
from pfl_benchmark.models.architectures import mobilenet, resnet8, resnet18, vit

REGISTERED = dict(ARCHITECTURES)  # before any test adds some
IMAGE = (3, 32, 32)
SPLITS = {
    "pfllib-cnn": ("conv1", "conv2", "fc1", "fc"),
    "resnet8-bn": resnet8.SPLITS,
    "resnet8-gn": resnet8.SPLITS,
    "resnet18-bn": resnet18.SPLITS,
    "resnet18-gn": resnet18.SPLITS,
    "mobilenet_v3_small": mobilenet.SPLITS,
    "vit-tiny": vit.SPLITS,
}
# With ten classes of CIFAR's images: parameters, running statistics.
COUNTS = {
    "pfllib-cnn": (878_538, 0),
    "resnet8-bn": (78_042, 672),
    "resnet8-gn": (78_042, 0),
    "resnet18-bn": (11_173_962, 9_600),
    "resnet18-gn": (11_173_962, 0),
    "mobilenet_v3_small": (1_528_106, 12_112),
    "vit-tiny": (2_693_578, 0),
}
OURS = sorted(SPLITS)


@pytest.fixture(scope="module")
def built():
    """``built(name)``: a network for CIFAR-10."""
    return lambda name: ARCHITECTURES[name].build(IMAGE, 10)


def start(network, seed=0):
    return network.init(np.random.default_rng(seed))


def images(count=3, shape=IMAGE):
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(5))


def masks(shape, rate):
    return torch.ones(shape)


# The entries


def test_every_architecture_says_what_it_is():
    assert REGISTERED.keys() >= {*SPLITS, *OWN.values()}
    for name, found in REGISTERED.items():
        assert found.name == name
        assert found.title
        assert found.source
        assert found.module.startswith("pfl_benchmark.models.architectures.")
        assert found.make.__doc__ or found.module.split(".")[-1].startswith("resnet")
    assert len({found.title for found in REGISTERED.values()}) == len(REGISTERED)


@pytest.mark.parametrize("name", OURS)
def test_split_points_and_sizes(name, built):
    network = built(name)
    assert network.names == SPLITS[name]
    assert isinstance(network.layers[-1], Linear)
    shapes = network.shapes()
    statistics = sum(math.prod(shapes[key]) for key in network.buffers)
    assert (network.count() - statistics, statistics) == COUNTS[name]


@pytest.mark.parametrize("name", ["resnet8-bn", "resnet8-gn", "pfllib-cnn"])
def test_logits(name, built):
    network = built(name)
    params = start(network)
    assert list(params) == network.keys()
    assert {key: tuple(tensor.shape) for key, tensor in params.items()} == network.shapes()
    logits = network.apply(params, images())
    assert logits.shape == (3, 10)
    assert (logits < 0).any()


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("pfllib-cnn", (1, 28, 28), 10, 582_026),
        ("cnn-cifar10", IMAGE, 10, 307_842),
        ("cnn-cifar100", IMAGE, 100, 1_075_044),
        ("cnn-emnist", (1, 28, 28), 26, 245_274),
    ],
)
def test_counts_that_are_published(name, shape, classes, count):
    assert ARCHITECTURES[name].build(shape, classes).count() == count


def test_the_datasets_own_networks_are_among_them():
    assert OWN.keys() == NETWORKS.keys()
    assert NETWORKS["cifar100"] == ARCHITECTURES["cnn-cifar100"].build(IMAGE, 100)
    assert NETWORKS["sent140"] == ARCHITECTURES["rnn-sent140"].build((300,), 2, kind="words")


@pytest.mark.parametrize("norm", ["bn", "gn"])
def test_resnet18_is_torchvisions(norm, built):
    """Its own class, told to take 3 x 3 and no pooling."""
    theirs = import_torchvision("models").resnet18(num_classes=10, norm_layer=resnet18.NORMS[norm][0])
    theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    same_as(theirs, built(f"resnet18-{norm}"))


def test_mobilenet_is_torchvisions(built):
    theirs = import_torchvision("models").mobilenet_v3_small(num_classes=10, dropout=0.0)
    same_as(theirs, built("mobilenet_v3_small"))


def test_vit_is_torchvisions(built):
    """Its own class, but for the attention in plain operations."""
    make = import_torchvision("models").VisionTransformer
    theirs = make(32, vit.PATCH, vit.DEPTH, vit.HEADS, vit.WIDTH, 4 * vit.WIDTH, num_classes=10).eval()
    nn.init.normal_(theirs.heads.head.weight)
    network, values = built("vit-tiny"), theirs.state_dict()
    ours = {"patches.patches.token": "class_token", "patches.patches.positions": "encoder.pos_embedding"}
    params = {}
    for key in network.shapes():
        name = ours.get(key, key.replace("patches.patches.projection", "conv_proj"))
        name = re.sub(
            r"block(\d)\.block\d", lambda found: f"encoder.layers.encoder_layer_{int(found[1]) - 1}", name
        )
        name = re.sub("^fc", "heads.head", name.replace("block6.norm", "encoder.ln"))
        params[key] = values[name]
    torch.testing.assert_close(network.apply(params, images()), theirs(images()), rtol=1e-3, atol=1e-3)


def test_resnet8_is_its_own_module(built):
    module = resnet8.build(3, 10, resnet8.NORMS["bn"][0], 16)
    same_as(module, built("resnet8-bn"))
    kinds = [type(stage.shortcut).__name__ for stage in (module.stage1, module.stage2, module.stage3)]
    assert kinds == ["Identity", "Sequential", "Sequential"]


def same_as(theirs, network):
    """The same outputs and statistics as a module, whose tensors are taken over in their order."""
    parameters, x = [*theirs.named_parameters()], images(4)
    names = network.keys()
    ours = [key for key in names if key not in network.buffers]
    params = {key: value.detach().clone() for key, (_, value) in zip(ours, parameters, strict=True)}
    moving = [name for name, _ in theirs.named_buffers() if not name.endswith("num_batches_tracked")]
    for _, part in theirs.named_modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
    fixed = [key for key in names if key in network.buffers]
    statistics = dict(theirs.named_buffers())
    params |= {key: statistics[name].clone() for key, name in zip(fixed, moving, strict=True)}
    for training in (False, True):
        with torch.no_grad():
            found = network.apply(params, x, dropout=masks if training else None)
            torch.testing.assert_close(found, theirs.train(training)(x), rtol=1e-3, atol=1e-4)
        for key, name in zip(fixed, moving, strict=True):
            torch.testing.assert_close(params[key], statistics[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["resnet8-gn", "pfllib-cnn"])
def test_stacked_models_are_the_models_one_by_one(name, built):
    """Outputs and gradients, whatever the memory format."""
    network = built(name)
    first, second = start(network), start(network, 1)
    stacked = {key: torch.stack([first[key], second[key]]).requires_grad_() for key in first}
    x = torch.stack([images(3), images(3).flip(0)])
    found = network.apply_stacked(stacked, x, dropout=masks)
    gradients = torch.autograd.grad(found.square().sum(), [*stacked.values()])
    for position, own in enumerate((first, second)):
        leaves = {
            key: tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
            for key, tensor in own.items()
        }
        leaves = {key: tensor.clone().requires_grad_() for key, tensor in leaves.items()}
        alone = network.apply(
            leaves, x[position].contiguous(memory_format=torch.channels_last), 0, None, masks
        )
        torch.testing.assert_close(found[position], alone, rtol=1e-4, atol=1e-5)
        for ours, theirs in zip(
            gradients, torch.autograd.grad(alone.square().sum(), [*leaves.values()]), strict=True
        ):
            torch.testing.assert_close(ours[position], theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", OURS)
def test_batch_normalisation_has_no_stacked_form(name, built):
    network = built(name)
    alone = {layer.name for layer in network.layers if layer.not_stackable}
    normalised = {key.partition(".")[0] for key in network.normalisation}
    assert alone == normalised
    assert bool(alone) == (name.endswith("bn") or name == "mobilenet_v3_small")
    assert network.buffers <= network.normalisation
    gains = network.normalisation - network.buffers
    assert len(gains) == len(network.buffers)


# Any module


class Own(nn.Module):
    """Children fed one after the other; `forward` flattens."""

    def __init__(self, classes=4, **changes):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.fc1 = nn.Linear(16, 6)
        self.act = nn.ReLU()
        self.mixed = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
        self.fc = nn.Linear(6, classes)
        for name, child in changes.items():
            setattr(self, name, child)

    def forward(self, x):
        x = self.pool(self.relu(self.conv(x))).flatten(1)
        return self.fc(self.mixed(self.act(self.fc1(x))))


SMALL = (2, 6, 6)
POINTS = ("conv", "fc1", "mixed", "fc")


def own(points=POINTS, sample=SMALL, make=Own, **changes):
    return network_from_module(lambda: make(**changes), points, sample)


def test_a_module_is_cut_at_its_split_points():
    network = own()
    assert network.names == POINTS
    assert network.splittable == ("fc1", "fc")
    kinds = [(type(layer).__name__, getattr(layer, "activation", None)) for layer in network.layers]
    assert kinds == [
        ("ModuleLayer", None),
        ("ModuleLinear", True),
        ("ModuleLayer", None),
        ("ModuleLinear", False),
    ]
    assert network.keys() == [
        *("conv.conv.weight", "conv.conv.bias", "fc1.weight", "fc1.bias"),
        *("mixed.mixed.0.weight", "mixed.mixed.0.bias", "fc.weight", "fc.bias"),
    ]
    assert own(("conv", "fc")).names == ("conv", "fc")
    flat = {"flat": nn.Flatten(), "fc1": nn.Linear(72, 6), "act": nn.ReLU(), "fc": nn.Linear(6, 4)}
    network = own(("fc1", "fc"), make=lambda: nn.Sequential(OrderedDict(flat)))
    assert network.splittable == ("fc1", "fc")
    network = own()
    reduced = network.with_layers({"fc1": LowRank("fc1", 16, 6, rank=2)})
    assert reduced.apply(reduced.init(np.random.default_rng(0)), images(3, SMALL)).shape == (3, 4)


def test_initial_values_follow_the_generator_and_the_modules_own_law():
    def make():
        module = Own()
        for part in (module.conv, module.fc1, module.fc):
            nn.init.normal_(part.weight, std=0.01)
            nn.init.ones_(part.bias)
        return module

    network = own(make=make)
    params, other = start(network), start(network, 1)
    before = torch.get_rng_state()
    again = start(network)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(params[key], again[key]) for key in params)
    for key in ("conv.conv.weight", "fc1.weight", "fc.weight", "mixed.mixed.0.weight"):
        assert not torch.equal(params[key], other[key])
        assert (params[key].std() < 0.02) == (not key.startswith("mixed"))
    assert (params["fc.bias"] == 1).all()


def test_a_fully_connected_layer_of_tokens_stays_the_modules():
    class Pooled(nn.Module):
        def forward(self, x):
            return x.mean(1)

    def make():
        parts = {"embed": nn.Linear(5, 6), "pool": Pooled(), "fc": nn.Linear(6, 4)}
        return nn.Sequential(OrderedDict(parts))

    network = network_from_module(make, ("embed", "fc"), (7, 5))
    assert network.splittable == ("fc",)
    stacked = {key: torch.stack([t, t]) for key, t in network.init(np.random.default_rng(0)).items()}
    assert network.apply_stacked(stacked, torch.rand(2, 3, 7, 5)).shape == (2, 3, 4)


def test_layers_do_not_change_their_input():
    network = own()
    params, x = network.init(np.random.default_rng(0)), images(3, SMALL)
    hidden = network.apply(params, x, stop=1)
    before = hidden.clone()
    network.apply(params, hidden, start=1, dropout=masks)
    assert torch.equal(hidden, before)


def test_threads_do_not_mix_their_tensors():
    """Each puts its own into the module while it computes."""
    parts = {"body": nn.Linear(8, 8, bias=False), "fc": nn.Linear(8, 3)}
    network = own(("body", "fc"), (8,), make=lambda: nn.Sequential(OrderedDict(parts)))
    models = [network.init(np.random.default_rng(seed)) for seed in range(8)]
    x = images(64, (8,))
    expected = [network.apply(params, x) for params in models]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            found = pool.map(lambda params: network.apply(params, x), models)
            assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_a_thread_keeps_no_values():
    network = own()
    params = network.init(np.random.default_rng(0))
    network.apply(params, images(3, SMALL))
    for layer in network.layers:
        if hasattr(layer, "module"):
            held = [*layer._own(False).parameters(), *layer.module.parameters()]
            assert held
            assert {tensor.device.type for tensor in held} == {"meta"}


def test_frozen_parameters_are_not_trained():
    frozen = nn.Conv2d(2, 4, 3)
    frozen.weight.requires_grad_(False)
    assert own(conv=frozen).buffers == {"conv.conv.weight"}


class Branching(Own):
    def forward(self, x):
        return super().forward(x) + x.mean()


class Noisy(Own):
    def forward(self, x):
        return super().forward(x) + self.training * torch.rand(1)


def tied():
    module = Own(classes=6)
    module.fc.weight = module.mixed[0].weight
    return module


BAD = {
    "unknown": (
        {"points": ("conf", "fc")},
        r"'conf' is no child \(did you mean 'conv'\?\); known: conv, relu",
    ),
    "not first": (
        {"points": ("fc1", "fc")},
        r"from the first with parameters \(normalisation aside\) on, each once",
    ),
    "disordered": ({"points": ("conv", "fc", "fc1")}, "expected children in the order conv, relu, pool"),
    "twice": ({"points": ("conv", "fc", "fc")}, "each once"),
    "none": ({"points": ()}, "the split points are none"),
    "no parameters": ({"points": ("conv", "pool", "fc1", "fc")}, "'pool' names no parameters"),
    "not linear": ({"points": ("conv", "mixed")}, "'mixed' must be a lone nn.Linear that is trained"),
    "frozen": (
        {"fc": nn.Linear(6, 4).requires_grad_(False)},
        "'fc' must be a lone nn.Linear that is trained",
    ),
    "dropout": ({"act": nn.Dropout(0.5)}, r"'act' \(Dropout\) has p=0.5.*random streams"),
    "another order": ({"make": Branching}, "its output is not that of its children conv, relu"),
    "random": ({"make": Noisy}, "in training mode is random"),
    "shared": ({"make": tied}, "'mixed' and 'fc' share a parameter"),
    "corrupting": (
        {"conv": nn.Conv2d(2, 4, 1, stride=2)},
        r"'conv' \(Conv2d\) is a 1 x 1 convolution with a stride, of fewer than 16 channels.*oneDNN",
    ),
    "cumulative": (
        {"relu": nn.BatchNorm2d(4, momentum=None)},
        r"'relu' \(BatchNorm2d\): expected running statistics with a fixed momentum",
    ),
    "no statistics": ({"relu": nn.BatchNorm2d(4, track_running_stats=False)}, "expected running statistics"),
}


@pytest.mark.parametrize("kind", BAD)
def test_modules_that_are_no_network(kind):
    given, message = BAD[kind]
    with pytest.raises(UserError, match=message) as error:
        own(**given)
    assert "\n" not in str(error.value)


# Data that do not fit


def build(make, shape=SMALL, classes=4, **more):
    return Architecture("mine", "Mine", "a test", make, "tests", **more).build(shape, classes)


@pytest.mark.parametrize(
    ("make", "more", "message"),
    [
        (lambda shape, classes: own(), {"classes": 5}, r"outputs of shape \(2, 4\); expected \(2, 5\)"),
        (lambda shape, classes: own(), {"shape": (3, 6, 6)}, "cannot be built"),
        (
            lambda shape, classes: own(sample=shape),
            {"shape": (1, 6, 6)},
            "1 x 6 x 6: .*cannot (be built|take)",
        ),
        (
            lambda shape, classes: own(),
            {"kind": "words"},
            "is for texts, and these are images of 6 x 6 pixels",
        ),
        (lambda shape, classes: own(), {"least": 7}, "is for images of 7 x 7 pixels or more, and these are"),
        (lambda shape, classes: 1 / 0, {}, r"cannot be built \(division by zero\)"),
        (lambda shape, classes: Own(), {}, "its factory returns Own, no Network"),
        (lambda shape, classes: own(("pool",)), {}, "mine, samples 2 x 6 x 6: the split points"),
    ],
)
def test_a_network_that_does_not_fit_the_data_is_one_line(make, more, message):
    with pytest.raises(UserError, match=message) as error:
        build(make, **more)
    assert "\n" not in str(error.value)


def test_the_shortest_series():
    least = ARCHITECTURES["cnn-series"].least
    network = ARCHITECTURES["cnn-series"].build((3, least), 4, "series")
    params = {name: torch.empty(size) for name, size in network.shapes().items()}
    with pytest.raises(RuntimeError):
        network.apply(params, torch.empty(2, 3, least - 1))
    with pytest.raises(UserError, match="series of 36 steps or more, and these are series of 35 steps"):
        ARCHITECTURES["cnn-series"].build((3, least - 1), 4, "series")


def test_names_are_given_once():
    with pytest.raises(ValueError, match="two networks are called 'resnet8-gn'"):
        register_network("resnet8-gn", "Twin", "none")(lambda shape, classes: own())
    assert ARCHITECTURES["resnet8-gn"].title != "Twin"
