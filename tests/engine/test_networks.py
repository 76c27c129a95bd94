"""Networks other than a dataset's own: every method on them, batch normalisation, what is on record."""

import dataclasses
import json
from collections import OrderedDict
from functools import partial

import numpy as np
import pytest
import torch
from small_networks import small_networks  # noqa: F401  # a fixture
from torch import nn

from pfl_benchmark.config.network import network_of
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.batches import check_batches, smallest_batch
from pfl_benchmark.engine.executors import EXECUTORS, choose_executor
from pfl_benchmark.engine.local import LocalCall, Phase, StackedModel
from pfl_benchmark.engine.params import expand
from pfl_benchmark.engine.rounds import mean_weights
from pfl_benchmark.engine.step import Rule
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import ARCHITECTURES, network_from_module
from pfl_benchmark.resolve.code import _digest, code_of
from pfl_benchmark.resolve.run import resolve

pytestmark = pytest.mark.usefixtures("small_networks")

CLIENTS = [2, 0]
SHORT = {"partition": "dirichlet", "dirichlet": 0.5, "clients": 4, "samples_per_client": 14}
REASON = "batch normalisation: places that fill a client's batch up would count in its statistics"


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr("pfl_benchmark.engine.executors.threads.available_cores", lambda: 2)


def work(algorithm, executor):
    """What an executor makes of a method's first round and of an evaluation."""
    call = algorithm.begin(CLIENTS, algorithm.message(CLIENTS, 1), 1)
    outcome = executor.train(call)
    (member, *_) = algorithm.members(CLIENTS)
    names = {*member.network.shapes()}
    trained = next(params for params in outcome.models.values() if names <= {*params})
    return outcome, executor.forward(member.network, trained, CLIENTS, "test")


REFUSED = {("fedbn", "gn"), ("phn", "bn")}  # it needs batch normalisation; it cannot make statistics


@pytest.mark.parametrize("norm", ["gn", "bn"])
def test_executors_agree_on_every_method(algo, norm, tiny, ready):
    if (algo, norm) in REFUSED:
        with pytest.raises(UserError, match=f"small-{norm}"):
            resolve(tiny(algo, network=f"small-{norm}", **SHORT))
        return
    algorithm = ready(tiny(algo, network=f"small-{norm}", **SHORT)).algorithm
    task = algorithm.task
    algorithm.start_round(1)
    expected, outputs = work(algorithm, task.executor)
    assert len({task.data.train_sizes[client] for client in CLIENTS}) == 2
    for name in ("threads", "stacked"):
        problem = EXECUTORS[name].unable(task.network, algorithm.not_stackable)
        trained = norm == "bn" and not algorithm.needs_adapters  # else its statistics stay
        assert bool(problem) == (name == "stacked" and (trained or bool(algorithm.not_stackable)))
        if problem:
            assert algorithm.not_stackable or problem.startswith(f"stem, stage1: {REASON}")
            continue
        executor = EXECUTORS[name](task.config, task.data, task.streams)
        try:
            found, others = work(algorithm, executor)
        finally:
            executor.close()
        assert (found.samples, found.steps) == (expected.samples, expected.steps)
        torch.testing.assert_close(found.models, expected.models, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(found.loss, expected.loss, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(others, outputs, rtol=1e-3, atol=1e-4)


def test_networks_with_batch_normalisation_are_not_stacked(tiny, launch, tmp_path):
    config = tiny("fedavg", network="small-bn")
    with pytest.raises(UserError, match=f"stacked cannot train this network: stem, stage1: {REASON}"):
        launch(config, tmp_path, executor="stacked")
    assert list(tmp_path.iterdir()) == []
    assert choose_executor("cpu", resolve(config).network) == "threads"
    assert choose_executor("cuda", resolve(config).network) == "loop"
    assert choose_executor("cuda", resolve(tiny("fedavg", network="small-gn")).network) == "stacked"


# Statistics


def test_fedavg_averages_statistics_and_says_so(tiny, play):
    played = play(tiny("fedavg", network="small-bn"))
    network, server = played.algorithm.network, played.algorithm.server
    assert network.buffers <= server.keys()
    assert all((server[name] != played.prepared.task.initial[name]).any() for name in network.buffers)
    assert "running statistics of batch normalisation are averaged" in played.summary["notes"][0]
    assert play(tiny("fedavg", network="small-gn")).summary["notes"] == []


def test_the_mean_of_statistics_is_that_of_the_participants(tiny, ready):
    algorithm = ready(tiny("fedavg", network="small-bn")).algorithm
    outcome, _ = work(algorithm, algorithm.task.executor)
    aggregator = algorithm.aggregator()
    aggregator.add(CLIENTS, algorithm.upload(outcome), mean_weights(algorithm, CLIENTS))
    algorithm.aggregate(aggregator.value())
    for name in algorithm.network.buffers:
        own = outcome.models["model"][name]
        assert not torch.equal(own[0], own[1])
        torch.testing.assert_close(algorithm.server[name], own.mean(0))


def test_fedbn_keeps_what_is_normalisation_within_a_layer(tiny, play):
    played = play(tiny("fedbn", network="small-bn"))
    network, models = played.algorithm.network, played.models()
    own = {name for name in models if ".norm" in name}
    assert own == network.normalisation
    assert played.algorithm.server.keys() == models.keys() - own
    for name, tensor in models.items():
        assert len({tuple(client.flatten().tolist()) for client in tensor}) == (6 if name in own else 1), name
    counts = played.algorithm.capacities()
    assert sum(map(sum, counts)) == network.count()
    assert counts[0][1] == sum(models[name][0].numel() for name in own)
    assert played.summary["notes"] == []


def test_fedbn_needs_batch_normalisation(tiny, launch, tmp_path):
    with pytest.raises(UserError, match="'fedbn' keeps batch normalisation, and --network small-gn has none"):
        launch(tiny("fedbn", network="small-gn"), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("algo", ["fedadam", "fedavgm", "feddyn"])
def test_optimisers_of_the_server_take_the_mean_of_statistics(algo, tiny, ready):
    """A step on a variance may make it negative."""
    algorithm = ready(tiny(algo, network="small-bn")).algorithm
    algorithm.message([0, 1, 2], 1)
    mean = {name: torch.full_like(tensor, 0.5) for name, tensor in algorithm.server.items()}
    algorithm.aggregate(mean)
    for name, tensor in algorithm.server.items():
        assert bool((tensor == 0.5).all()) == (name in algorithm.network.buffers)


# Batches of one


class Halves(Rule):
    batches = 2

    def __call__(self, step):
        raise NotImplementedError


WHOLE, HALVES = Phase({}, 1), Phase({}, 1, rule=Halves())


def flat(shape, classes):
    """Batch normalisation of single values."""
    parts = {"stem": nn.Conv2d(shape[0], 4, 3), "pool": nn.AdaptiveAvgPool2d(1), "norm": nn.BatchNorm2d(4)}
    return nn.Sequential(OrderedDict(parts, flatten=nn.Flatten(), fc=nn.Linear(4, classes)))


FLAT = network_from_module(partial(flat, (1, 8, 8), 10), ("stem", "fc"), (1, 8, 8))


@pytest.mark.parametrize(
    ("size", "batch", "parts", "smallest"),
    [(20, 10, 1, 10), (21, 10, 1, 1), (9, 10, 1, 9), (1, 10, 1, 1), (21, 10, 2, 0), (22, 10, 2, 1), (40, 10, 2, 10)],  # noqa: E501
)  # fmt: skip
def test_the_smallest_batch_of_an_epoch(size, batch, parts, smallest):
    assert smallest_batch(size, batch, parts) == smallest
    left = list(range(size))[size - size % (batch * parts) :]
    if left:
        assert smallest == min(len(left[first::parts]) for first in range(parts))


LEAVES = "client 1 has 31 training samples, and --batch-size 10 leaves a batch of 1.*give --batch-size 9, or"


@pytest.mark.parametrize(
    ("name", "batch", "sizes", "phase", "message"),
    [
        ("small-bn", 1, [8], WHOLE, "--batch-size is 1, and batch normalisation needs several samples"),
        ("flat", 10, [20, 31], WHOLE, LEAVES),
        ("small-bn", 10, [40, 41], HALVES, "client 1 has 41 .* leaves a batch of 0"),
        ("flat", 2, [1, 8], WHOLE, "give clients other numbers of samples, or"),
        ("flat", 10, [20, 32, 9], WHOLE, ""),
        ("small-bn", 10, [21], WHOLE, ""),
    ],
)
def test_batches_of_which_there_are_no_statistics(name, batch, sizes, phase, message):
    shape = (1, 8, 8)
    network = FLAT if name == "flat" else ARCHITECTURES[name].build(shape, 10)
    if not message:
        check_batches(network, batch, sizes, [phase], torch.zeros(shape))
        return
    with pytest.raises(UserError, match=message) as error:
        check_batches(network, batch, sizes, [phase], torch.zeros(shape))
    assert "resnet8-gn" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_batch_of_one_is_refused_before_the_first_round(tiny, launch, tmp_path):
    for algo in ("fedavg", "fedbn"):
        with pytest.raises(UserError, match="--batch-size is 1, and batch normalisation"):
            launch(tiny(algo, network="small-bn", batch_size=1), tmp_path)
    assert list(tmp_path.iterdir()) == []


# What is on record


def test_records_say_the_network(tiny, launch, tmp_path):
    finished = launch(tiny("fedavg", network="small-gn", rounds=1), tmp_path)
    assert finished.folder.name.startswith("fedavg-digits-small-gn-s2-seed0-")
    config = json.loads((finished.folder / "config.json").read_text())["config"]
    assert config["network"] == "small-gn"
    own = launch(tiny("fedavg", rounds=1), tmp_path)
    assert own.folder.name.startswith("fedavg-digits-s2-seed0-")


def test_old_records_are_of_the_datasets_own_network(tiny):
    old = tiny("fedavg").to_dict()
    del old["network"]
    config = RunConfig.from_dict(old)
    assert config.own_network
    assert "network" not in json.loads(config.identity)
    assert config.hash == tiny("fedavg").hash
    assert tiny("fedavg", network="small-gn").hash != config.hash


def test_equal_configurations_have_one_network(tiny):
    """Recorded steps are found again by it."""
    assert network_of(tiny("fedavg", network="small-gn")) == network_of(tiny("ditto", network="small-gn"))


@pytest.mark.parametrize(
    ("network", "used", "other"),
    [("resnet8-gn", "resnet8.py", "resnet18.py"), ("resnet8-gn", "norms.py", "mobilenet.py")],
)
def test_the_code_of_the_network_counts_and_that_of_others_does_not(network, used, other, tiny, monkeypatch):
    from pfl_benchmark.records.sources import SOURCES

    folder = "benchmark/models/architectures"
    codes = []
    for changed in ("", used, other):
        _digest.cache_clear()
        with monkeypatch.context() as patch:
            if changed:
                text = SOURCES[f"{folder}/{changed}"]
                patch.setitem(SOURCES, f"{folder}/{changed}", text + b"\nx = 1")
            codes.append([code_of(tiny("fedavg", network=name)) for name in (network, "dataset")])
    _digest.cache_clear()
    (mine, plain), (mine_used, plain_used), (mine_other, plain_other) = codes
    assert mine != mine_used
    assert mine == mine_other
    assert plain == plain_used == plain_other


def test_initial_values_are_the_same_for_every_executor(tiny, ready):
    first, second = (
        ready(tiny("fedavg", network="small-gn"), name).prepared.task for name in ("loop", "threads")
    )
    second.executor.close()
    assert all(torch.equal(first.initial[name], second.initial[name]) for name in first.initial)
    values = np.concatenate([tensor.flatten().numpy() for tensor in first.initial.values()])
    assert np.isfinite(values).all()


def test_passes_through_other_models_leave_their_statistics_alone(tiny, ready):
    """A method may compare its model with one that the server or the client holds."""
    task = ready(tiny("fedavg", network="small-bn")).algorithm.task
    other = {name: tensor.unsqueeze(0).clone() for name, tensor in task.initial.items()}

    def compared(step):
        return step.cross_entropy() + step.cross_entropy(step.apply(step.constants["other"]))

    phase = Phase.of(task.network.names, 0.05, 1)
    phase = dataclasses.replace(phase, objective=compared)
    model = StackedModel(task.network, expand(task.initial, 1))
    outcome = task.executor.train(
        LocalCall(1, [0], {"model": model}, [phase], constants={"other": {**other}})
    )
    for name in task.network.buffers:
        assert torch.equal(other[name][0], task.initial[name])
        assert not torch.equal(outcome.models["model"][name][0], task.initial[name])


def test_a_distance_of_models_leaves_statistics_out(tiny, ready):
    """The first loss of a pull to the received model is the cross-entropy, as nothing has moved yet."""
    task = ready(tiny("fedavg", network="small-bn")).algorithm.task
    received = {name: tensor + (name in task.network.buffers) for name, tensor in task.initial.items()}
    seen = []

    def pulled(step):
        distance = step.squared_distance(step.constants["received"])
        seen.append(distance.detach())
        return step.cross_entropy() + distance

    phase = dataclasses.replace(Phase.of(task.network.names, 0.05, 1), objective=pulled)
    model = StackedModel(task.network, expand(task.initial, 1))
    constants = {"received": expand(received, 1)}
    task.executor.train(LocalCall(1, [0], {"model": model}, [phase], constants=constants))
    assert seen[0] == 0
    assert seen[-1] > 0
