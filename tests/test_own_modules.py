"""Networks of one's own: what a child may hold and do, under every executor, against plain PyTorch."""

import math
from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from pfl_benchmark.engine.executors import EXECUTORS, choose_executor
from pfl_benchmark.engine.local import LocalCall, Phase, StackedModel
from pfl_benchmark.engine.params import expand
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import ARCHITECTURES, network_from_module, register_network
from pfl_benchmark.resolve.run import resolve

WIDTH = 6


class Child(nn.Module):
    """What stands between the first and the last layer; kinds add what `forward` needs."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.b(self.a(x).tanh())


class TiedWeight(Child):
    def __init__(self):
        super().__init__()
        self.b.weight = self.a.weight


class TiedBias(Child):
    def __init__(self):
        super().__init__()
        self.b.bias = self.a.bias


class TiedModule(Child):
    def __init__(self):
        super().__init__()
        self.b = self.a


class TiedFunctional(Child):
    def forward(self, x):
        return F.linear(self.a(x).tanh(), self.a.weight.t())


class TiedBuffer(Child):
    """Two names of one buffer, which training changes by one of them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(WIDTH))
        self.register_buffer("again", self.seen)

    def forward(self, x):
        if self.training:
            self.seen.add_(x.detach().mean(0))
        return super().forward(x) + 0.1 * self.again


class Recurrent(Child):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(2, WIDTH, batch_first=True)

    def forward(self, x):
        return super().forward(self.cell(x.unflatten(1, (3, 2)))[0][:, -1])


class Spectral(Child):
    def __init__(self, norm=spectral_norm):
        super().__init__()
        self.b = norm(self.b)


class Numbers(Child):
    """A parameter and two buffers without dimensions; one counts what training has seen."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("offset", torch.tensor(0.25))

    def forward(self, x):
        return self.scale * super().forward(x) + self.offset


class Counting(Numbers):
    def forward(self, x):
        if self.training:
            self.offset.add_(0.01)
        return super().forward(x)


class Lazy(Child):
    def __init__(self):
        super().__init__()
        self.a = nn.LazyLinear(WIDTH)


class Item(Child):
    def forward(self, x):
        return super().forward(x) * x.detach().abs().max().item()


class Branch(Child):
    def forward(self, x):
        return super().forward(x) if x.mean() > 0.1 else self.a(x)


class BranchInTraining(Child):
    def forward(self, x):
        return super().forward(x) if not self.training or x.mean() > -100 else self.a(x)


class Fixed(Child):
    """Buffers that no message needs: integers, booleans, and one that is not saved."""

    def __init__(self):
        super().__init__()
        self.register_buffer("order", torch.arange(WIDTH).flip(0))
        self.register_buffer("mask", torch.arange(WIDTH) % 2 == 0)
        self.register_buffer("slope", torch.linspace(0, 1, WIDTH), persistent=False)

    def forward(self, x):
        return super().forward(x)[:, self.order].where(self.mask, self.slope)


ROWS = WIDTH * WIDTH + WIDTH
COUNTS = {  # of the child's numbers that are sent
    "plain": 2 * ROWS,
    "tied weight": ROWS + WIDTH,
    "tied bias": 2 * ROWS - WIDTH,
    "tied module": ROWS,
    "tied functional": 2 * ROWS,
    "tied buffer": 2 * ROWS + WIDTH,
    "lstm": 2 * ROWS + 4 * (2 + WIDTH + 2) * WIDTH,
    "gru": 2 * ROWS + 3 * (2 + WIDTH + 2) * WIDTH,
    "rnn": 2 * ROWS + (2 + WIDTH + 2) * WIDTH,
    "spectral norm": 2 * ROWS + 2 * WIDTH,
    "old spectral norm": 2 * ROWS + 2 * WIDTH,
    "weight norm": 2 * ROWS + WIDTH,
    "numbers": 2 * ROWS + 2,
    "counting": 2 * ROWS + 2,
    "lazy": 2 * ROWS,
    "item": 2 * ROWS,
    "branch": 2 * ROWS,
    "branch in training": 2 * ROWS,
    "fixed buffers": 2 * ROWS,
    "no bias": 2 * ROWS,
    "frozen": 2 * ROWS,
}
KINDS = {
    "plain": Child,
    "tied weight": TiedWeight,
    "tied bias": TiedBias,
    "tied module": TiedModule,
    "tied functional": TiedFunctional,
    "tied buffer": TiedBuffer,
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "rnn": lambda: Recurrent(nn.RNN),
    "spectral norm": lambda: Spectral(parametrizations.spectral_norm),
    "old spectral norm": Spectral,
    "weight norm": lambda: Spectral(parametrizations.weight_norm),
    "numbers": Numbers,
    "counting": Counting,
    "lazy": Lazy,
    "item": Item,
    "branch": Branch,
    "branch in training": BranchInTraining,
    "fixed buffers": Fixed,
    "no bias": Child,
    "frozen": Child,
}
UNSTACKED = {
    "tied buffer": "'child.seen' is changed in training",
    "lstm": r"'child.cell' \(LSTM\) has no stacked form",
    "gru": r"'child.cell' \(GRU\) has no stacked form",
    "rnn": r"'child.cell' \(RNN\) has no stacked form",
    "spectral norm": r"parametrizations.weight.* is changed in training",
    "old spectral norm": r"'child.b.weight_.' is changed in training",
    "counting": "'child.offset' is changed in training",
    "item": r"'child' \(Item\) takes decisions by values of tensors",
    "branch": r"'child' \(Branch\) takes decisions by values of tensors",
    "branch in training": r"'child' \(BranchInTraining\) takes decisions by values of tensors",
}
SPLITS = ("first", "child", "fc")


def module(kind, inputs, classes):
    first = nn.Linear(inputs, WIDTH)
    if kind == "frozen":
        first.requires_grad_(False)
    parts = {"flat": nn.Flatten(), "first": first, "act": nn.ReLU(), "child": KINDS[kind]()}
    return nn.Sequential(OrderedDict(parts, fc=nn.Linear(WIDTH, classes, bias=kind != "no bias")))


def register(kind):
    """As a plugin does it."""
    name = f"own-{kind.replace(' ', '-')}"

    @register_network(name, f"Own, {kind}", "tests")
    def make(shape, classes):
        return network_from_module(lambda: module(kind, math.prod(shape), classes), SPLITS, shape)

    return name


@pytest.fixture(params=KINDS)
def kind(request):
    name = register(request.param)
    yield request.param
    del ARCHITECTURES[name]


@pytest.fixture
def config(kind, tiny):
    return tiny("fedavg", network=f"own-{kind.replace(' ', '-')}", momentum=0.5, test_samples_per_client=8)


def plain(task, kind, sgd, epochs):
    """The first client's model after the same batches in plain PyTorch."""
    whole = module(kind, 64, 10)
    if kind == "lazy":
        whole(torch.zeros(1, 1, 8, 8))
    names = dict([*whole.named_parameters(remove_duplicate=False), *whole.named_buffers()])
    with torch.no_grad():
        for key, value in task.initial.items():
            mine = names[key if key in names else key.partition(".")[2]]
            mine.copy_(value.view(mine.shape))
    trained = [tensor for tensor in whole.parameters() if tensor.requires_grad]
    optimiser = torch.optim.SGD(trained, **sgd)
    x, y = task.data.encode(task.data.raw(0)), task.data.labels(0)
    rng = task.streams.get("batches-main", 1, 0)
    for tensor in trained:
        tensor.grad = torch.zeros_like(tensor)  # what a step does not use has gradient 0
    for _ in range(epochs):
        for batch in torch.from_numpy(rng.permutation(len(y))).split(5):
            optimiser.zero_grad(set_to_none=False)
            F.cross_entropy(whole(x[batch]), y[batch]).backward()
            optimiser.step()
    return {
        key: names[key if key in names else key.partition(".")[2]].detach().view(value.shape)
        for key, value in task.initial.items()
    }


@pytest.mark.parametrize("executor", ["loop", "threads", "stacked", "auto"])
def test_twenty_steps_are_plain_pytorchs(kind, executor, config, ready, launch, tmp_path):
    config = config.__class__(**{**config.__dict__, "batch_size": 5})
    if executor == "stacked" and kind in UNSTACKED:
        message = f"--executor stacked cannot train this network: child: .*{UNSTACKED[kind]}"
        with pytest.raises(UserError, match=message) as error:
            ready(config, executor)
        assert "\n" not in str(error.value)
        return
    task = ready(config, executor).prepared.task
    assert task.network.count(["child"]) == COUNTS[kind]
    if executor == "auto":
        assert task.executor.name == ("threads" if kind in UNSTACKED else "stacked")
    model = StackedModel(task.network, expand(task.initial, 2))
    try:
        phase = Phase.of(task.network.names, 0.05, 5)
        outcome = task.executor.train(LocalCall(1, [0, 3], {"model": model}, [phase]))
        outputs = task.executor.forward(task.network, outcome.models["model"], [0, 3], "test")
    finally:
        task.executor.close()
    assert outcome.steps == 2 * 20 if executor in ("loop", "threads") else outcome.steps >= 20
    expected = plain(task, kind, {"lr": 0.05, "momentum": 0.5}, 5)
    found = {name: tensor[0] for name, tensor in outcome.models["model"].items()}
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert [output.shape for output in outputs] == [(8, 10)] * 2


def test_a_run_of_each_kind_is_recorded(kind, config, launch, tmp_path):
    summary = launch(config, tmp_path, executor="auto").summary
    sent = summary["parameters"] if "parameters" in summary else resolve(config).network.count()
    assert sent == 65 * WIDTH + COUNTS[kind] + 10 * WIDTH + 10 * (kind != "no bias")


# What is refused


def hidden():
    whole = module("plain", 64, 10)
    whole.child.other = [whole.first]
    whole.child.forward = lambda x: F.linear(x, whole.child.other[0].weight[:, :WIDTH])
    return whole
