"""Options of local training: against PyTorch, across executors, for all methods, and in what is planned."""

import dataclasses
import re

import pytest
import torch
import torch.nn.functional as F
from plain_digits import PlainDigits

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.check.equality import equality
from pfl_benchmark.config.run_config import REFUSABLE, TRAINING, RunConfig
from pfl_benchmark.engine.budget import plan_rounds
from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.engine.executors import EXECUTORS, LoopExecutor
from pfl_benchmark.engine.executors.program import Program
from pfl_benchmark.engine.hooks import Hooks
from pfl_benchmark.engine.local import Batches, LocalCall, Phase, StackedModel
from pfl_benchmark.engine.params import expand, row
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.resolve.run import resolve

LAYERS = ("conv1", "conv2", "fc1", "fc2", "fc3")
UNEVEN = {"partition": "dirichlet", "dirichlet": 0.1, "clients": 10, "samples_per_client": 22}
CLIENTS, ROUND, BATCH = [8, 0, 3, 5, 2], 3, 8  # of different sizes
# A value of each option that is not its default, and what must come with it.
OTHERS = {
    "optimizer": {"optimizer": "adam", "lr": 0.002},
    "nesterov": {"nesterov": True},
    "lr_schedule": {"lr_schedule": "exponential:0.8"},
    "clip_norm": {"clip_norm": 0.5},
    "local_steps": {"local_steps": 5},
    "label_smoothing": {"label_smoothing": 0.1},
}


def ours(task, epochs=2, factor=1.0, **phase):
    """The models that the clients train from the start [m, ...]."""
    model = StackedModel(task.network, expand(task.initial, len(CLIENTS)))
    phases = [Phase(dict.fromkeys(LAYERS, task.config.lr), epochs, **phase)]
    call = LocalCall(ROUND, CLIENTS, {"model": model}, phases, factor=factor)
    return task.executor.train(call)


def batches_of(task, client, steps):
    """The first batches of a client's epochs, one epoch after the other."""
    order, size = task.streams.get("batches-main", ROUND, client), len(task.data.labels(client))
    found = []
    while len(found) < steps:
        found += torch.from_numpy(order.permutation(size)).split(BATCH)
    return found[:steps]


def theirs(task, client, make, steps=None, clip=0.0, smoothing=0.0, factor=1.0):
    """The same training by PyTorch; `make` gives an optimiser."""
    net = PlainDigits(task.initial)
    optimiser = make(net, task.config.lr * factor)
    x, y = task.data.inputs(client), task.data.labels(client)
    for batch in batches_of(task, client, steps or 2 * -(-len(y) // BATCH)):
        optimiser.zero_grad()
        F.cross_entropy(net(x[batch]), y[batch], label_smoothing=smoothing).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimiser.step()
    return {name: tensor.detach() for name, tensor in net.state_dict().items()}


@pytest.fixture(params=sorted(EXECUTORS))
def task(request, tiny, ready):
    """``task(optimizer="adam")``: a task of each executor, on clients of different sizes."""
    made = []

    def make(**changes):
        config = tiny("fedavg", **{**UNEVEN, "momentum": 0.5, **changes})
        made.append(ready(config, request.param).prepared.task)
        return made[-1]

    yield make
    for each in made:
        each.executor.close()


def sgd(nesterov, decay=0.0):
    return lambda net, lr: torch.optim.SGD(net.groups(decay), lr=lr, momentum=0.5, nesterov=nesterov)


def adaptive(kind, decay):
    return lambda net, lr: kind(net.groups(decay), lr=lr)


CASES = {
    "Nesterov": ({"nesterov": True}, sgd(True), {}),
    "Nesterov, decay": ({"nesterov": True, "weight_decay": 0.05}, sgd(True, 0.05), {}),
    "Adam": ({"optimizer": "adam", "lr": 0.002}, adaptive(torch.optim.Adam, 0.0), {}),
    "Adam, decay": (
        {"optimizer": "adam", "lr": 0.002, "weight_decay": 0.05},
        adaptive(torch.optim.Adam, 0.05),
        {},
    ),
    "AdamW": (
        {"optimizer": "adamw", "lr": 0.002, "weight_decay": 0.5},
        adaptive(torch.optim.AdamW, 0.5),
        {},
    ),
    "clipped": ({"clip_norm": 0.3, "weight_decay": 0.05}, sgd(False, 0.05), {"clip": 0.3}),
    "clipped Adam": (
        {"clip_norm": 0.3, "optimizer": "adam", "lr": 0.002},
        adaptive(torch.optim.Adam, 0.0),
        {"clip": 0.3},
    ),
    "smoothed": ({"label_smoothing": 0.2}, sgd(False), {"smoothing": 0.2}),
}


encode = FederatedData.encode


@pytest.fixture
def in_float64(monkeypatch):
    """``in_float64(task)``: the task with its inputs and all that is computed in float64."""
    monkeypatch.setattr(FederatedData, "encode", lambda self, raw: encode(self, raw).double())
    monkeypatch.setitem(Program._zeros.__kwdefaults__, "dtype", torch.float64)

    def change(task):
        torch.set_default_dtype(torch.float64)
        initial = {name: value.double() for name, value in task.initial.items()}
        return dataclasses.replace(task, initial=initial)

    yield change
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_training_is_pytorchs(case, factor, task, in_float64):
    """In float64: Adam divides by a gradient's size, so that rounding is seen where it is near zero."""
    changes, make, more = CASES[case]
    task = in_float64(task(**changes))
    found = ours(task, factor=factor).models["model"]
    for position, client in enumerate(CLIENTS):
        expected = theirs(task, client, make, factor=factor, **more)
        torch.testing.assert_close(row(found, position), expected, rtol=1e-5, atol=2e-8)


@pytest.mark.parametrize("steps", [1, 4, 11])
def test_batches_in_place_of_epochs_go_on_over_epochs(steps, task):
    task = task()
    outcome = ours(task, Batches(steps))
    taken = {client: batches_of(task, client, steps) for client in CLIENTS}
    assert outcome.steps == steps * len(CLIENTS)
    assert outcome.samples == sum(len(batch) for own in taken.values() for batch in own)
    for position, client in enumerate(CLIENTS):
        expected = theirs(task, client, sgd(False), steps)
        torch.testing.assert_close(row(outcome.models["model"], position), expected, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_masked_entries_stay_where_they_are(optimizer, task):
    task = task(optimizer=optimizer, weight_decay=0.1, clip_norm=0.5)
    mask = (task.initial["fc2.weight"] > 0).float()
    found = ours(task, masks={"fc2.weight": mask}).models["model"]["fc2.weight"]
    start, moved = task.initial["fc2.weight"], 1 - mask
    assert torch.equal(found * moved, start * moved.expand_as(found))
    assert not torch.equal(found * mask, start * mask.expand_as(found))


@pytest.mark.parametrize("changes", [{"augment": True}, {"dropout": 0.5}, {"batch_size": 50}])
def test_batches_of_images_that_change_are_the_loops(changes, tiny, ready):
    config = tiny("fedavg", **{**UNEVEN, "crop_padding": 1, **changes})
    outcomes = []
    for executor in ("loop", "stacked"):
        task = ready(config, executor).prepared.task
        outcomes.append(ours(task, Batches(7)))
        task.executor.close()
    one, other = outcomes
    assert (one.samples, one.steps) == (other.samples, other.steps)
    torch.testing.assert_close(one.models, other.models, rtol=1e-3, atol=2e-5)
    torch.testing.assert_close(one.loss, other.loss, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "make"),
    [
        ("constant", lambda o: torch.optim.lr_scheduler.ConstantLR(o, 1.0)),
        ("exponential:0.9", lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9)),
        ("step:3:0.1", lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.1)),
        ("cosine", lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10)),
    ],
)
def test_schedules_are_pytorchs_stepped_after_every_round(text, make, tiny, play, monkeypatch):
    rates = []
    train = LoopExecutor.train

    def watched(self, call):
        rates.append(call.factor * call.phases[0].rates["fc3"])
        return train(self, call)

    monkeypatch.setattr(LoopExecutor, "train", watched)
    play(tiny("fedavg", lr_schedule=text, rounds=10, lr=0.1, eval_every=0))
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    scheduler, expected = make(optimiser), []
    for _ in range(10):
        expected.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    assert rates == pytest.approx(expected)


def all_of(method):
    """Values of all options that a method takes."""
    found = {"optimizer": "sgd", "nesterov": True}
    for name in TRAINING:
        if name not in method.refuses and name != "optimizer":
            found |= OTHERS[name]
    return {name: value for name, value in found.items() if name not in method.refuses}


def test_executors_agree_on_every_method(algo, able):
    able("stacked")
    rows = [
        *equality(Execution(device="cpu"), ["digits"], "stacked", [(algo, None)], **all_of(ALGORITHMS[algo]))
    ]
    assert rows
    assert [row for row in rows if not (row["equal"] and row["repeatable"])] == []


def test_every_method_runs_under_what_it_takes_and_trains_on_what_was_planned(
    algo, tiny, ready, launch, tmp_path
):
    """With Adam, if it takes it; on clients of different sizes."""
    method, changes = ALGORITHMS[algo], all_of(ALGORITHMS[algo])
    if "optimizer" not in method.refuses:
        changes = {name: value for name, value in changes.items() if name != "nesterov"} | OTHERS["optimizer"]
    config = tiny(
        algo,
        budget="samples",
        sample_budget=4000,
        rounds=8,
        partition="dirichlet",
        dirichlet=1.0,
        eval_every=0,
        **changes,
    )
    config = config.settled()
    prepared = ready(config).prepared
    assert len({*prepared.task.data.train_sizes}) > 1
    expected = plan_rounds(config, prepared.make)
    run = launch(config, tmp_path)
    spent = run.summary["samples"] + run.summary["adaptation_samples"]
    assert spent == pytest.approx(expected.planned, rel=0.02 if algo in ("fedala", "fedfomo") else 1e-9)
    assert run.summary["budget"] == dataclasses.asdict(expected)


@pytest.mark.parametrize(("name", "algo"), [(n, a) for a, m in ALGORITHMS.items() for n in m.refuses])
def test_what_a_method_does_not_take_is_refused_with_the_reason(name, algo, tiny):
    assert name in REFUSABLE
    flag = re.escape(f"--{name.replace('_', '-')}")
    with pytest.raises(UserError, match=rf"^{flag}.* is not for '{algo}', \w+ .*; drop the flag") as found:
        resolve(tiny(algo, **{"weights": {"weights": f"sha256:{'0' * 64}"}, **OTHERS}[name]))
    assert "\n" not in str(found.value)


def test_options_at_their_defaults_are_not_in_the_identity():
    assert {*TRAINING} == {*OTHERS}
    assert not {*TRAINING} & ({*RunConfig().identifying} | {*RunConfig().to_record()})
    for name, changes in OTHERS.items():
        config = RunConfig(**changes)
        assert {name} == {*TRAINING} & {*config.identifying} == {*TRAINING} & {*config.to_record()}
        assert RunConfig.from_dict(config.to_record()) == config


def test_a_method_that_trains_by_epochs_says_so_under_local_steps(tiny, ready, monkeypatch):
    fedavg = ALGORITHMS["fedavg"]
    monkeypatch.setattr(fedavg, "phases", lambda self, _: [Phase.of(LAYERS, 0.1, self.config.local_epochs)])
    algorithm = ready(tiny("fedavg", local_steps=3)).algorithm
    with pytest.raises(UserError, match=r"'fedavg': `phases` trains by epochs.*self\.local_work"):
        Hooks(algorithm)
