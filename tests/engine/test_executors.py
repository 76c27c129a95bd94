"""Executors: different ways to the same local work, held equal to the plain loop."""

import dataclasses
import time
from typing import ClassVar

import pytest
import torch

from pfl_benchmark.algorithms.ditto import Pull
from pfl_benchmark.engine.executors import EXECUTORS, choose_executor
from pfl_benchmark.engine.local import LocalCall, Phase, StackedModel
from pfl_benchmark.engine.params import expand
from pfl_benchmark.engine.step import Rule
from pfl_benchmark.models import NETWORKS, LowRank
from pfl_benchmark.records.environment import CORES_VARIABLE, available_cores

OTHERS = sorted(set(EXECUTORS) - {"loop"})
LAYERS = ("conv1", "conv2", "fc1", "fc2", "fc3")
UNEVEN = {"partition": "dirichlet", "dirichlet": 0.1, "clients": 10, "samples_per_client": 22}
CLIENTS = [8, 0, 3, 5, 2]  # of 12 to 41 samples at batches of 8: some steps concern only one of them


@pytest.fixture(params=OTHERS)
def both(request, tiny, ready):
    """Tasks of the loop and of another executor: ``both(momentum=0.9)`` changes their configuration."""
    tasks = []

    def make(**changes):
        config = tiny("fedavg", **{**UNEVEN, "momentum": 0.5, **changes})
        tasks.extend(ready(config, name).prepared.task for name in ("loop", request.param))
        return tasks

    yield make
    for task in tasks:
        task.executor.close()


def start_of(task, clients=CLIENTS):
    """A different model for every client."""
    factors = 1 + 0.1 * torch.arange(len(clients))
    return {
        name: tensor * factors.view(-1, *[1] * (tensor.dim() - 1))
        for name, tensor in expand(task.initial, len(clients)).items()
    }


def outcomes(tasks, phases, weights=None, chances=None, beside=None, constants=None):
    found = []
    for task in tasks:
        models = {
            "model": StackedModel(task.network, start_of(task)),
            "personal": StackedModel(task.network, expand(task.initial, len(CLIENTS))),
        }
        models["model"].params.update(beside or {})
        sizes = [task.data.train_sizes[k] for k in CLIENTS]
        own, drawn = ([make(n) for n in sizes] if make else None for make in (weights, chances))
        call = LocalCall(3, CLIENTS, models, phases(task), own, drawn, constants or {})
        found.append(task.executor.train(call))
    return found


def assert_same(loop, other):
    assert (loop.round, loop.clients) == (other.round, other.clients)
    assert (loop.samples, loop.steps) == (other.samples, other.steps)
    torch.testing.assert_close(other.models, loop.models, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(other.loss, loop.loss, rtol=1e-3, atol=1e-5)
    assert len(loop.features) == len(other.features)
    for (z, y), (ours, labels) in zip(loop.features, other.features, strict=True):
        assert torch.equal(y, labels)
        torch.testing.assert_close(ours, z, rtol=1e-3, atol=1e-4)


def test_the_clients_of_these_tests_are_uneven(both):
    sizes = both()[0].data.train_sizes
    steps = {-(-sizes[k] // 8) for k in CLIENTS}
    assert len(steps) > 2
    assert any(sizes[k] % 8 for k in CLIENTS)


@pytest.mark.parametrize(
    "phases",
    {
        "everything": lambda task: [Phase.of(LAYERS, 0.05, 2)],
        "head": lambda task: [Phase.of(LAYERS[4:], 0.05, 2)],
        "body": lambda task: [Phase.of(LAYERS[:4], 0.05, 2)],
        "first": lambda task: [Phase.of(LAYERS[:1], 0.05, 1)],
        "rates": lambda task: [Phase({"conv1": 0.01, "fc2": 0.1, "fc3": 0.02}, 2)],
        "alternating": lambda task: [Phase.of(LAYERS[4:], 0.05, 2), Phase.of(LAYERS[:4], 0.05, 1)],
        "two models": lambda task: [
            Phase.of(LAYERS, 0.05, 1),
            dataclasses.replace(
                Phase.of(LAYERS, 0.05, 2),
                model="personal",
                stream="batches-personal",
                rule=Pull(2.0),
                constants={"anchor": {name: t * 0.5 for name, t in task.initial.items()}},
            ),
        ],
        "masks": lambda task: [
            dataclasses.replace(
                Phase.of(LAYERS, 0.05, 2),
                masks={"fc2.weight": (task.initial["fc2.weight"] > 0).float()},
            )
        ],
        "collect": lambda task: [dataclasses.replace(Phase.of(LAYERS[:4], 0.05, 2), collect="fc3")],
        "collect early": lambda task: [dataclasses.replace(Phase.of(LAYERS[4:], 0.05, 2), collect="fc1")],
        "no epochs": lambda task: [Phase.of(LAYERS, 0.05, 1), Phase.of(LAYERS[4:], 0.05, 0)],
        "nothing": lambda task: [],
    }.items(),
    ids=lambda case: case[0],
)
def test_phases(both, phases):
    assert_same(*outcomes(both(), phases[1]))


def regularised(step):
    """Cross-entropy, a pull to a model common to all, and a tilt that each client has of its own."""
    tilt = (step.params["extra.tilt"] * step.constants["own"]["slope"]).sum(1)
    features = step.mean(step.features.flatten(2).square().mean(2))
    return step.cross_entropy() + 0.3 * step.squared_distance(step.constants["goal"]) + tilt + 0.1 * features


@dataclasses.dataclass(frozen=True)
class LookAhead(Rule):
    """The engine's own step with gradients of one half of the batch, where the other half has led to."""

    rate: float
    batches: ClassVar[int] = 2

    def __call__(self, step):
        first, second = step.split(2)
        own = {name: step.params[name] for name in step.rates}
        gradients, losses = first.gradient(own)
        slopes, _ = second.gradient({name: own[name] - self.rate * gradients[name] for name in own})
        step.descend(slopes)
        return losses


@pytest.mark.parametrize("weights", [None, lambda size: torch.linspace(0.2, 1.8, size)], ids=["", "weights"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"dropout": 0.4}, {"augment": True, "momentum": 0.9, "weight_decay": 0.05}, {"batch_size": 5}],
    ids=str,
)
def test_own_objectives_and_rules(both, changes, weights):
    """Some clients sit out steps: neither penalties nor rules may move them, nor their momentum."""
    rates = {"fc1": 0.02, "fc3": 0.05, "extra": 0.1}
    beside = {"extra.tilt": torch.ones(len(CLIENTS), 3)}
    constants = {"own": {"slope": torch.linspace(-1, 1, 3 * len(CLIENTS)).view(-1, 3)}}

    def phases(task):
        goal = {"goal": {name: 0.5 * task.initial[name] for name in ("fc1.weight", "fc3.bias")}}
        return [
            Phase(rates, 2, objective=regularised, constants=goal, collect="fc3"),
            Phase.of(LAYERS, 0.02, 2),
            dataclasses.replace(Phase.of(LAYERS, 0.02, 2), rule=LookAhead(0.03), passes=2),
        ]

    loop, other = outcomes(both(**changes), phases, weights, None, beside, constants)
    assert_same(loop, other)
    moved = loop.models["model"]["extra.tilt"] - 1
    assert (moved.abs().amax(1) > 0).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"momentum": 0.0},
        {"momentum": 0.9, "weight_decay": 0.05},
        {"dropout": 0.5},
        {"augment": True},
        {"augment": True, "crop_padding": 0},
        {"augment": True, "dropout": 0.3},
        {"batch_size": 1},
        {"batch_size": 100},
    ],
    ids=str,
)
def test_protocols(both, changes):
    assert_same(*outcomes(both(**changes), lambda task: [Phase.of(LAYERS, 0.02, 2)]))


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_frozen_body_under_dropout(both, dropout):
    assert_same(*outcomes(both(dropout=dropout), lambda task: [Phase.of(LAYERS[4:], 0.05, 2)]))


def test_sample_weights(both):
    weights = lambda size: torch.linspace(0.2, 1.8, size)  # noqa: E731
    assert_same(*outcomes(both(), lambda task: [Phase.of(LAYERS, 0.05, 2)], weights))


@pytest.mark.parametrize("augment", [False, True])
def test_drawing_by_chances(both, augment):
    chances = lambda size: torch.arange(size) % 3  # noqa: E731
    assert_same(*outcomes(both(augment=augment), lambda task: [Phase.of(LAYERS, 0.05, 2)], None, chances))


def test_low_rank_layers(both):
    loop, other = both()
    network = NETWORKS["digits"].with_layers({"fc1": LowRank("fc1", 128, 64, rank=9)})
    found = []
    for task in (loop, other):
        params = expand(network.init(task.streams.get("init")), len(CLIENTS))
        call = LocalCall(1, CLIENTS, {"model": StackedModel(network, params)}, [Phase.of(LAYERS, 0.05, 2)])
        found.append(task.executor.train(call))
    assert_same(*found)


@pytest.mark.parametrize("stop", [None, 0, 2, 4])
@pytest.mark.parametrize("part", ["train", "test"])
def test_forward_passes(both, part, stop):
    loop, other = (
        task.executor.forward(task.network, start_of(task), CLIENTS, part, stop) for task in both()
    )
    for ours, theirs in zip(loop, other, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_one_client_alone(both):
    tasks = both()
    found = [
        task.executor.train(
            LocalCall(
                3,
                [3],
                {"model": StackedModel(task.network, expand(task.initial, 1))},
                [Phase.of(LAYERS, 0.05, 2)],
            )
        )
        for task in tasks
    ]
    assert_same(*found)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_start_and_the_clients_are_left_alone(executor, tiny, ready, differing):
    task = ready(tiny("fedavg", **UNEVEN), executor).prepared.task
    start = start_of(task)
    before = {name: tensor.clone() for name, tensor in start.items()}
    call = LocalCall(
        1, list(CLIENTS), {"model": StackedModel(task.network, start)}, [Phase.of(LAYERS, 0.05, 1)]
    )
    outcome = task.executor.train(call)
    task.executor.close()
    assert differing(start, before) == []
    assert call.clients == CLIENTS
    assert not any(t.requires_grad for t in (*start.values(), *outcome.models["model"].values()))


def test_equal_calls_give_equal_bits(both, differing):
    for task in both(momentum=0.9):
        first, second = (outcomes([task], lambda task: [Phase.of(LAYERS, 0.05, 2)])[0] for _ in range(2))
        assert differing(first.models["model"], second.models["model"]) == []


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_thread_count_is_restored(executor, tiny, ready):
    before = torch.get_num_threads()
    task = ready(tiny("fedavg"), executor).prepared.task
    with pytest.raises(ZeroDivisionError):
        task.executor._map(lambda i: 1 // i, 2)
    assert torch.get_num_threads() == before
    task.executor.close()


def test_automatic_choices_exist():
    for device in ("cpu", "cuda"):
        for network in NETWORKS.values():
            assert choose_executor(device, network) in EXECUTORS


@pytest.mark.parametrize(("share", "cores"), [("", 4), ("3", 3), ("4", 4), ("64", 4), ("0", 1), ("many", 4)])
def test_a_share_of_the_cores_is_at_most_what_there_is(share, cores, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(4)), raising=False)
    monkeypatch.setenv(CORES_VARIABLE, share)
    assert available_cores() == cores


def test_two_models_trained_alike_do_not_mix(both):
    """Nor does what came back change with the next call: recorded steps use the same buffers again."""
    alike = [Phase.of(LAYERS, 0.05, 1), dataclasses.replace(Phase.of(LAYERS, 0.05, 1), model="personal")]
    tasks = both()
    loop, other = outcomes(tasks, lambda task: alike)
    outcomes(tasks[1:], lambda task: [Phase.of(LAYERS, 0.5, 1), *alike])
    assert_same(loop, other)


def test_a_failure_is_told_when_nothing_is_running_any_more(both):
    done = []

    def task(i):
        if i == 0:
            raise ZeroDivisionError
        time.sleep(0.05)
        done.append(i)

    for executor in (task.executor for task in both()[1:]):
        with pytest.raises(ZeroDivisionError):
            executor._map(task, 3)
        assert sorted(done) == [1, 2]
