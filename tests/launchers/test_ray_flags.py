"""What is refused before a Ray cluster has to do anything, and how one is divided; without Ray."""

import socket
import sys
import types
from pathlib import Path

import pytest

from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.ray import connect, told_workers
from pfl_benchmark.launch import find
from pfl_benchmark.launch.base import Options
from pfl_benchmark.launch.ray_cluster import divide
from pfl_benchmark.track.tensorboard import TensorBoard


def fake(error):
    """A Ray that cannot be joined."""

    def init(**_):
        raise error

    return types.SimpleNamespace(is_initialized=lambda: False, init=init, shutdown=lambda: None)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install ray.*--launcher local"):
        find("ray")(Options(2, Execution(), []))


def test_trackers_would_stay_on_the_machines(tmp_path):
    with pytest.raises(UserError, match=r"--wandb and --tensorboard write would stay on its machines"):
        find("ray")(Options(2, Execution(trackings=(TensorBoard(tmp_path),)), []))


def test_what_was_given_beside_the_configuration_is_told(monkeypatch):
    """A worker looks for a dataset of a plug-in, and knows it then."""
    for name in ("PFL_PLUGINS", "PFL_WEIGHTS", "PFL_OWN_DATA", "PFL_DATA_DIR"):
        monkeypatch.setenv(name, f"of {name}")
    told = told_workers(3)
    assert {name: told[name] for name in told if name.startswith("PFL_")}.items() >= {
        "PFL_PLUGINS": "of PFL_PLUGINS", "PFL_WEIGHTS": "of PFL_WEIGHTS", "PFL_OWN_DATA": "of PFL_OWN_DATA",
        "PFL_DATA_DIR": "of PFL_DATA_DIR", "PFL_CORES": "3",
    }.items()  # fmt: skip


def test_an_address_where_nothing_listens():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(UserError, match=f"the Ray cluster '127.0.0.1:{port}': .*refused.*ray start --head"):
        connect(fake(AssertionError("not asked")), f"127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["nowhere", "host:", ":6379", "host:port"])
def test_an_address_that_is_none(address):
    with pytest.raises(UserError, match=f"cannot use the Ray cluster '{address}': expected HOST:PORT"):
        connect(fake(AssertionError("not asked")), address)


@pytest.mark.parametrize(
    "error", [ConnectionError("Could not find any\nrunning"), RuntimeError("Version mismatch")]
)
def test_a_cluster_that_cannot_be_joined(error):
    with pytest.raises(UserError) as refused:
        connect(fake(error), "auto")
    assert str(error).splitlines()[0] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_joining_machines_get_the_whole_package_and_nothing_else():
    given = {}
    ray = fake(AssertionError("not asked"))
    ray.init = lambda **options: given.update(options)
    connect(ray, "auto")
    (sent,) = map(Path, given["runtime_env"]["py_modules"])
    assert sent.name == "pfl_benchmark"  # by which it is imported there
    assert {"__init__.py", "algorithms", "datasets", "engine"} <= {path.name for path in sent.iterdir()}


TWO, WITH_GPU = [(3, 0), (5, 0)], [(8, 0), (16, 2)]


@pytest.mark.parametrize(
    ("machines", "jobs", "cells", "device", "expected"),
    [
        (TWO, None, 99, "auto", (8, 1, 0.0)),
        (TWO, 0, 99, "auto", (8, 1, 0.0)),
        (TWO, 8, 99, "auto", (8, 1, 0.0)),
        (TWO, 3, 99, "auto", (3, 2, 0.0)),  # 1 on three CPUs, 2 on five
        (TWO, 2, 99, "auto", (2, 3, 0.0)),
        (TWO, None, 2, "auto", (2, 3, 0.0)),  # two runs: no use for more workers
        (WITH_GPU, None, 99, "auto", (2, 8, 1.0)),
        (WITH_GPU, 4, 99, "cuda", (4, 4, 0.5)),
        (WITH_GPU, 3, 99, "auto", (3, 5, 0.5)),
        (WITH_GPU, None, 99, "cpu", (24, 1, 0.0)),
        ([(1, 4), (8, 1)], 9, 99, "auto", (9, 1, 1 / 8)),  # eight of them on the one GPU with eight CPUs
    ],
)
def test_a_cluster_is_divided_so_that_all_find_room(machines, jobs, cells, device, expected):
    assert divide(machines, jobs, cells, device) == expected


@pytest.mark.parametrize(
    ("machines", "jobs", "device", "message"),
    [
        (
            TWO,
            9,
            "auto",
            "--jobs 9: every job needs a CPU, and the Ray cluster has 8; give --jobs 8 or fewer",
        ),
        (WITH_GPU, 17, "auto", "machines with a GPU have 16"),
        (TWO, 2, "cuda", "--device cuda: expected auto or cpu on this Ray cluster, or cuda if it has a GPU"),
        (WITH_GPU, 2, "cuda:1", "--device cuda:1: expected auto or cpu"),
        ([], None, "auto", "the Ray cluster has 0"),
    ],
)
def test_what_a_cluster_cannot_do(machines, jobs, device, message):
    with pytest.raises(UserError, match=message):
        divide(machines, jobs, 99, device)


@pytest.mark.parametrize("launcher", ["local", "ray"])
def test_runs_side_by_side_do_not_each_take_all_machines(launcher):
    options = Options(2, Execution(executor="ray"), [None, None])
    with pytest.raises(UserError, match="it takes all machines of the cluster for one run"):
        find(launcher)(options)
