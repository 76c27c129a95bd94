"""Host and device: every method runs on an accelerator that the CPU plays, and gives the CPU's figures.

What that shows and what only a GPU can: docs/performance.md.
"""

from itertools import cycle

import numpy as np
import pandas as pd
import pytest
import torch
from accelerator import DEVICE, traffic

from pfl_benchmark.algorithms import ALGORITHMS, needed
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.engine.budget import Plan
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.engine.executors.program import Program
from pfl_benchmark.engine.executors.replay import Recorder
from pfl_benchmark.engine.executors.stacked import StackedExecutor
from pfl_benchmark.engine.params import clone
from pfl_benchmark.engine.rounds import run
from pfl_benchmark.errors import NotDefined
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.prepare import prepare
from pfl_benchmark.records.writer import RunRecord
from pfl_benchmark.resolve.run import resolve, with_hyper

# A cohort of one, both clients in the last round, a whole batch and a short one.
SMALL = {
    "clients": 2,
    "participation": 0.5,
    "rounds": 4,
    "local_epochs": 1,
    "batch_size": 8,
    "eval_every": 2,
}
IMAGES = {**SMALL, "dataset": "digits", "samples_per_client": 11, "test_samples_per_client": 4}
TEXTS = {**SETTINGS["synth-tweets"].values, **SMALL, "user_pool": 2, "batch_size": 32}
EXECUTED = sorted(set(EXECUTORS) - {"threads"})  # threads are for CPUs
KINDS = {"images": IMAGES, "texts": TEXTS}
CASES = [  # on texts every method in one of the executors
    *((name, None, "images", executor) for name in ALGORITHMS for executor in EXECUTED),
    *((name, None, "texts", executor) for name, executor in zip(ALGORITHMS, cycle(EXECUTED))),
]
ABLATED = [
    (name, ablation, kind, executor)
    for name, method in ALGORITHMS.items()
    for ablation, (kind, executor) in zip(
        method.ablations, cycle([("images", "stacked"), ("texts", "loop"), ("images", "stacked")])
    )
]


class Device(Execution):
    def pick_device(self):
        return DEVICE


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """The host reads no value in a phase of `stacked`, and makes or uploads nothing in a recorded step."""
    record, train = Recorder.record, StackedExecutor._train

    def recorded(self, step, reset):
        def refusing():
            with traffic.refused("a recorded step", "up", "down", "made"):
                step()

        return record(self, refusing, reset)

    def trained(self, slot, call):
        with traffic.refused("a phase of stacked", "down"):
            return train(self, slot, call)

    monkeypatch.setattr(Recorder, "record", recorded)
    monkeypatch.setattr(StackedExecutor, "_train", trained)


class Kept:
    """An observer that keeps the lines, without what depends on the clock."""

    def __init__(self):
        self.lines = []

    def start(self, rounds, done):
        pass

    def round(self, line):
        self.lines.append({k: v for k, v in line.items() if not k.startswith("seconds")})


def play(config, execution, folder):
    """Carry out a run; returns its lines, the server's tensors and the clients' test losses."""
    prepared = prepare(resolve(config), execution)
    algorithm = prepared.make(config.rounds)
    record = RunRecord(folder, config, config.algo)
    record.folder.mkdir(parents=True)
    kept = Kept()
    run(algorithm, Plan(config.rounds, "rounds"), record, None, kept, {}, 1e9)
    prepared.task.executor.close()
    clients = pd.read_csv(record.folder / "clients.csv")
    return kept.lines, clone(algorithm.server), clients["loss"].to_numpy()


def check(config, executor, tmp_path):
    """Hold a run on the device equal to one on the CPU, or skip what is not defined."""
    try:
        resolved = resolve(config)
    except NotDefined as reason:
        pytest.skip(str(reason))
    if reason := EXECUTORS[executor].unable(resolved.network):
        pytest.skip(reason)
    lines, server, clients = play(config, Execution(device="cpu", executor=executor), tmp_path / "cpu")
    ours, on_device, on_clients = play(config, Device(executor=executor), tmp_path / "device")
    for line, expected in zip(ours, lines, strict=True):
        assert list(line) == list(expected)
        for name, value in expected.items():
            assert line[name] == (
                value if isinstance(value, str) else pytest.approx(value, rel=1e-3, abs=1e-4)
            )
    np.testing.assert_allclose(on_clients, clients, rtol=1e-3)
    assert all(tensor.device == DEVICE for tensor in on_device.values())
    on_host = {name: tensor.cpu() for name, tensor in on_device.items()}
    torch.testing.assert_close(on_host, server, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("algo", "ablation", "kind", "executor"), CASES, ids=str)
def test_methods_give_the_figures_of_the_cpu(algo, ablation, kind, executor, tmp_path):
    check(RunConfig(algo=algo, **needed(algo), **KINDS[kind]), executor, tmp_path)


@pytest.mark.parametrize(("algo", "ablation", "kind", "executor"), ABLATED, ids=str)
def test_ablations_give_the_figures_of_the_cpu(algo, ablation, kind, executor, tmp_path):
    check(with_hyper(RunConfig(algo=algo, **needed(algo), **KINDS[kind]), {}, ablation), executor, tmp_path)


@pytest.fixture
def without_float64(monkeypatch):
    """The device has none, as Apple's GPUs (--device mps)."""
    monkeypatch.setattr(traffic, "float64", False)
    monkeypatch.setattr("pfl_benchmark.engine.params.WITHOUT_FLOAT64", {DEVICE.type})


@pytest.mark.parametrize(("algo", "executor"), [*zip(ALGORITHMS, cycle(EXECUTED))])
def test_methods_do_without_float64_on_the_device(algo, executor, without_float64, tmp_path):
    with pytest.raises(TypeError, match="no float64"):
        torch.ones(2, dtype=torch.float64).to(DEVICE)
    check(RunConfig(algo=algo, **needed(algo), **IMAGES), executor, tmp_path)


@pytest.mark.parametrize("executor", EXECUTED)
@pytest.mark.parametrize(
    "changes",
    [
        {"nesterov": True, "clip_norm": 0.5, "lr_schedule": "cosine"},
        {"optimizer": "adam", "lr": 0.001, "weight_decay": 0.01, "lr_schedule": "step:2:0.1"},
        {"optimizer": "adamw", "lr": 0.001, "weight_decay": 0.1, "local_steps": 3, "augment": True},
        {"local_steps": 5, "label_smoothing": 0.1, "lr_schedule": "exponential:0.9"},
    ],
)
def test_options_of_local_training(changes, executor, without_float64, tmp_path):
    for algo in ("fedavg", "ditto"):
        check(RunConfig(algo=algo, **{**IMAGES, **changes}), executor, tmp_path / algo)


@pytest.mark.parametrize("executor", EXECUTED)
def test_augmentation_and_dropout(executor, tmp_path):
    config = RunConfig(algo="fedavg", **IMAGES, augment=True, crop_padding=2, dropout=0.5)
    check(config, executor, tmp_path)


# -- what the accelerator refuses -------------------------------------------------------------------------


def on_both():
    host = torch.arange(12.0).reshape(3, 4)
    return host, host.to(DEVICE)


@pytest.mark.parametrize(
    "mix",
    [
        lambda host, device: device + host,
        lambda host, device: host @ device.T,
        lambda host, device: torch.cat([device, host]),
        lambda host, device: torch.stack([host, device]),
        lambda host, device: torch.where(device > 1, device, host),
        lambda host, device: host[torch.zeros(1, dtype=torch.int64, device=DEVICE)],
        lambda host, device: torch._foreach_add([device], [host]),
        lambda host, device: torch.stack([device.sum(), torch.tensor(1.0)]),
        lambda host, device: torch.tensor(1.0).add_(device.sum()),
    ],
)
def test_host_and_device_do_not_mix(mix):
    with pytest.raises(RuntimeError, match="host"):
        mix(*on_both())


def test_an_array_of_the_device_has_to_be_copied_first():
    _, device = on_both()
    with pytest.raises(TypeError, match="copy it to the host"):
        device.numpy()


@pytest.mark.parametrize(
    ("what", "act"),
    [
        ("down", lambda device: float(device.sum())),
        ("down", lambda device: device.cpu()),
        ("down", lambda device: device.tolist()),
        ("down", lambda device: device[device > 1]),
        ("down", lambda device: (device > 1).nonzero()),
        ("down", lambda device: torch.equal(device, device)),
        ("down", lambda device: torch.allclose(device, device)),
        ("down", lambda device: torch.bincount(device.long().flatten())),
        ("down", lambda device: torch.linalg.inv(device @ device.T)),
        ("up", lambda device: device.copy_(torch.zeros(3, 4))),
        ("up", lambda device: torch.zeros(3).to(DEVICE)),
        ("up", lambda device: torch.tensor([1.0, 2.0], device=DEVICE)),
        ("made", lambda device: torch.zeros(3, device=DEVICE)),
    ],
)
def test_traffic_is_refused_where_it_must_not_be(what, act):
    _, device = on_both()
    act(device)
    with traffic.refused("a test", what), pytest.raises(AssertionError, match="within a test"):
        act(device)


def test_a_phase_that_reads_a_value_is_found(monkeypatch, tmp_path):
    loss = Program.loss
    monkeypatch.setattr(Program, "loss", lambda self: loss(self) * float(loss(self).sum()))
    with pytest.raises(AssertionError, match="within a phase of stacked"):
        play(RunConfig(algo="fedavg", **IMAGES), Device(executor="stacked"), tmp_path)


def test_a_step_that_uploads_is_found(monkeypatch, tmp_path):
    step = Program._step
    monkeypatch.setattr(Program, "_step", lambda self: (step(self), torch.zeros(2).to(DEVICE)))
    with pytest.raises(AssertionError, match="within a recorded step"):
        play(RunConfig(algo="fedavg", **IMAGES), Device(executor="stacked"), tmp_path)
