"""Networks of one's own: what a child may hold and do, under every executor, against plain PyTorch."""

import math
from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from pfl_benchmark.engine.local import LocalCall, Phase, StackedModel
from pfl_benchmark.engine.params import expand
from pfl_benchmark.engine.registry import find
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import ARCHITECTURES, network_from_module, register_network
from pfl_benchmark.resolve.run import resolve

WIDTH = 6


class Child(nn.Module):
    """What stands between the stem and the last layer; kinds add what `forward` needs."""

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
SPLITS = ("stem", "child", "fc")


def module(kind, inputs, classes):
    stem = nn.Linear(inputs, WIDTH)
    if kind == "frozen":
        stem.requires_grad_(False)
    parts = {"flat": nn.Flatten(), "stem": stem, "act": nn.ReLU(), "child": KINDS[kind]()}
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
    network = resolve(config).network
    assert network.count() == 65 * WIDTH + COUNTS[kind] + 10 * WIDTH + 10 * (kind != "no bias")
    participations = 3 * 3 + 6  # all take part in the last round
    assert summary["bytes_up"] == 4 * participations * network.count()


# Methods


@pytest.mark.parametrize("kind", ["no bias", "numbers"], indirect=True)
def test_every_method_trains_them_or_says_why_not(algo, kind, tiny, launch, tmp_path):
    config = tiny(algo, {"T": 3} if algo == "ppfe" else None, network=f"own-{kind.replace(' ', '-')}")
    reason = {
        "fedbn": "keeps batch normalisation",
        "phn": "buffers .* cannot be made" if kind == "numbers" else "",
    }.get(
        algo,
        "uses the bias of the last layer, and 'fc'" if find(algo).needs_bias and kind == "no bias" else "",
    )
    if reason:
        with pytest.raises(UserError, match=reason):
            launch(config, tmp_path, executor="auto")
    else:
        launch(config, tmp_path, executor="auto")


# What is refused


class Half(Child):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH, dtype=torch.float64))


class Assigning(Child):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return super().forward(x)


class Steps(Child):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        self.steps += 1
        return super().forward(x)


class Shuffled(Child):
    def __init__(self, persistent=True):
        super().__init__()
        values = torch.randperm(50) if persistent else torch.rand(50)
        self.register_buffer("order", values, persistent=persistent)


class Unregistered(Child):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(WIDTH)

    def forward(self, x):
        return super().forward(x) * self.scale


class SameMemory(Child):
    def __init__(self):
        super().__init__()
        self.b.weight = nn.Parameter(self.a.weight.t())


class Borrowing(nn.Module):
    """Computes with another child's weights, which are not registered here."""

    def __init__(self, other):
        super().__init__()
        self.own, self.others = nn.Linear(WIDTH, WIDTH), [other]

    def forward(self, x):
        return self.own(F.linear(x, self.others[0].weight))


def with_child(make):
    return lambda: nn.Sequential(
        OrderedDict(stem=nn.Linear(4, WIDTH), child=make(), more=Child(), fc=nn.Linear(WIDTH, 3))
    )


def across(what):
    def make():
        whole = with_child(Child)()
        if what == "weight":
            whole.more.b.weight = whole.child.a.weight
        elif what == "bias":
            whole.more.b.bias = whole.child.a.bias
        elif what == "module":
            whole.more.b = whole.child.a
        elif what == "transposed":
            whole.more.b.weight = nn.Parameter(whole.child.a.weight.t())
        elif what == "data":
            whole.more.b.weight.data = whole.child.a.weight.data
        elif what == "hidden":
            whole.child = Borrowing(whole.more.a)
        elif what == "buffer":
            whole.child, whole.more = TiedBuffer(), TiedBuffer()
            whole.more.seen = whole.more.again = whole.child.seen = whole.child.again
        return whole

    return make


REFUSED = {
    "a weight of two": (across("weight"), "'child' and 'more' share a parameter; make one of them"),
    "a bias of two": (across("bias"), "'child' and 'more' share a parameter"),
    "a module of two": (across("module"), "'child' and 'more' share a parameter"),
    "a transposed weight": (
        across("transposed"),
        "'child.a.weight' and 'more.b.weight' are two tensors in the same",
    ),
    "common data": (across("data"), "'child.a.weight' and 'more.b.weight' are two tensors in the same"),
    "a hidden tie": (across("hidden"), "its output is not .* with tensors that are parameters or buffers"),
    "a buffer of two": (across("buffer"), "changed by more than its child|not that of its children"),
    "same memory": (
        with_child(SameMemory),
        "'child.a.weight' and 'child.b.weight' are two tensors in the same",
    ),
    "doubles": (
        with_child(Half),
        r"'child' \(Half\) has the parameter scale of torch.float64; expected float32",
    ),
    "an assignment": (with_child(Assigning), r"'child' \(Assigning\): its tensor mean .* in place"),
    "a counter": (with_child(Steps), r"'child' \(Steps\): its tensor steps of torch.int64 is changed"),
    "random integers": (
        with_child(Shuffled),
        r"'child' \(Shuffled\): its tensor order of torch.int64 is random",
    ),
    "random, not saved": (
        with_child(lambda: Shuffled(False)),
        r"its tensor order of torch.float32 is random",
    ),
    "unregistered": (
        with_child(Unregistered),
        r"'child' \(Unregistered\) holds the tensor scale, .* register_buffer",
    ),
    "old weight norm": (
        with_child(lambda: Spectral(weight_norm)),
        r"'child.b' \(Linear\) holds the tensor weight",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_kept_is_one_line(name):
    make, message = REFUSED[name]
    with pytest.raises(UserError, match=message) as error:
        network_from_module(make, ("stem", "child", "more", "fc"), (4,))
    assert "\n" not in str(error.value)
