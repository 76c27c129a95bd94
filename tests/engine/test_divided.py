"""Clients of a round divided among workers: bit-equal to one device, whoever has a client and is lost."""

import numpy as np
import pytest
import torch
from accelerator import DEVICE
from replicas import Here

from pfl_benchmark.engine.executors.divided import ATTEMPTS, DividedExecutor
from pfl_benchmark.engine.executors.wire import pack, unpack
from pfl_benchmark.engine.params import expand
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment import divided
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.models import Network
from pfl_benchmark.models.frozen import with_second_lora


@pytest.fixture
def among(launch, tmp_path):
    """``among(config)``: a run by workers in this process, and these."""

    def go(config, count=2, lost=()):
        workers = []

        def begin(config, execution):
            workers.extend(Here(config, lost=lost if number == 0 else ()) for number in range(count))
            return workers

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(divided, "_workers", begin)
            return launch(config, tmp_path / "among"), workers

    return go


def test_two_workers_equal_one_process(algo, tiny, unbroken, among):
    run, workers = among(tiny(algo))
    assert run.content() == unbroken(algo).content()
    assert all(worker.asked and worker.closed for worker in workers)
    environment = run.summary["environment"]
    assert (environment["workers"], environment["executor"], environment["device"]) == (2, "loop", "cpu")


@pytest.mark.parametrize("algo", ["fedavg", "ditto"])
def test_workers_follow_newcomers_and_drift(algo, tiny, launch, among, tmp_path):
    config = tiny(algo, new_clients=0.3, shift="drift=2:feature=corruption:2")
    assert among(config)[0].content() == launch(config, tmp_path / "one").content()


@pytest.mark.parametrize("adapters", ["lora:r=2", "head"])
def test_workers_have_the_frozen_part(adapters, tiny, launch, among, tmp_path):
    config = tiny("fedavg", adapters=adapters)
    assert among(config)[0].content() == launch(config, tmp_path / "one").content()


def test_what_a_lost_worker_had_is_done_again(tiny, unbroken, among, capsys):
    run, (first, second) = among(tiny("ditto"), lost=[2, 5, 6])
    assert run.content() == unbroken("ditto").content()
    assert (first.starts, second.starts) == (4, 1)
    assert capsys.readouterr().err.count("the worker on here is lost (killed)") == 3


def test_a_worker_that_is_lost_again_and_again(tiny, among):
    with pytest.raises(UserError, match=f"lost {ATTEMPTS} times in one round"):
        among(tiny("fedavg"), lost=range(1, 100))


def test_errors_of_workers_are_those_of_the_run(tiny, ready, monkeypatch):
    played = ready(tiny("fedavg"))
    task, config = played.prepared.task, played.prepared.config
    executor = DividedExecutor(task.executor, task.network, [Here(config)])

    class Strange(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} {two}")

    for error, kind, text in (
        (UserError("not so"), UserError, "not so"),
        (torch.OutOfMemoryError("full"), torch.OutOfMemoryError, "full"),
        (Strange("very", "odd"), RuntimeError, "Strange: very odd"),
    ):

        def fails(*_, error=error, **__):
            raise error

        monkeypatch.setattr(Network, "apply", fails)
        with pytest.raises(kind, match=text) as caught:
            executor.forward(task.network, expand(task.initial, 2), [0, 1], "test")
        assert "on a worker:" in caught.value.__notes__[0]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 40])
def test_parts_are_neighbours_of_about_equal_samples(count, tiny, ready):
    task = ready(tiny("fedavg")).prepared.task
    executor = DividedExecutor(task.executor, task.network, [None] * count)
    rng = np.random.default_rng(count)
    sizes = rng.integers(1, 100, 60).tolist()
    for clients in (range(60), range(7, 19), [5], rng.permutation(60).tolist()):
        parts = executor._parts(clients, sizes)
        assert [client for part in parts for client in clients[part]] == [*clients]
        assert 1 <= len(parts) <= count
        share = sum(sizes[client] for client in clients) / count
        assert all(sum(sizes[client] for client in clients[part]) <= share + 100 for part in parts)


def test_the_server_may_be_elsewhere(tiny, ready):
    """Workers on an accelerator, and the run's own process without."""

    class Device(Execution):
        def pick_devices(self):
            return [DEVICE]

    played = ready(tiny("fedrep"))
    task, config = played.prepared.task, played.prepared.config
    workers = [Here(config, Device(executor="loop")) for _ in range(2)]
    executor = DividedExecutor(task.executor, task.network, workers)
    assert workers[0]._replica._device == DEVICE
    cohort = [0, 2, 5]
    message = played.algorithm.message(cohort, 1)
    call = played.algorithm.begin(cohort, message, 1)
    ours, theirs = executor.train(call), task.executor.train(call)
    assert (ours.clients, ours.samples, ours.steps) == (cohort, theirs.samples, theirs.steps)
    torch.testing.assert_close(ours.models, theirs.models)
    (a, b), (c, d) = (
        one.forward(task.network, expand(task.initial, 2), [1, 3], "train")
        for one in (executor, task.executor)
    )
    torch.testing.assert_close([a, b], [c, d])


def test_messages_send_a_model_once_and_no_network(tiny, ready):
    task = ready(tiny("fedavg")).prepared.task
    one, many = (pack(expand(task.initial, count), task.network) for count in (1, 1000))
    assert len(many) < 1.1 * len(one)
    found = unpack(many, task.network)
    assert {name: tensor.shape[0] for name, tensor in found.items()} == dict.fromkeys(task.initial, 1000)
    torch.testing.assert_close({name: tensor[7] for name, tensor in found.items()}, task.initial)
    message = pack([task.network, task.network], task.network)
    assert len(message) < 100
    assert unpack(message, task.network)[1] is task.network


def test_what_is_frozen_is_not_sent(tiny, ready):
    """A worker has it on its own device, also in networks that are made of the run's."""
    network = ready(tiny("feddpa")).prepared.task.network
    other = ready(tiny("feddpa")).prepared.task.network
    assert other is not network
    found = unpack(pack(with_second_lora(network, "personal", 0.5), network), other)
    assert len(found.layers[0].updates) == 2
    for layer, own in zip(found.layers, other.layers, strict=True):
        for name, tensor in getattr(layer, "constants", {}).items():
            assert tensor is own.constants[name]


def test_what_cannot_be_sent_is_one_line(tiny, ready):
    task = ready(tiny("fedavg")).prepared.task
    with pytest.raises(UserError, match="define its objectives and rules at the top of a module"):
        pack(lambda: None, task.network)
