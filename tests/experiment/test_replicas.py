"""Several devices in one run: workers in processes, and one that is killed in the middle."""

import multiprocessing

import pytest
import torch

from pfl_benchmark import run
from pfl_benchmark.engine.executors.threads import available_cores
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment import replicas
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import run_cell
from pfl_benchmark.experiment.unrecorded import Quiet
from pfl_benchmark.interface.federated import FederatedData
from pfl_benchmark.resolve.run import resolve

TWO = pytest.mark.skipif(available_cores() < 2, reason="two devices need two cores")


def on_two(config, folder, observer):
    execution = Execution(device="cpu,cpu", executor="threads", results_dir=folder, checkpoint_seconds=0)
    return run_cell(resolve(config), execution, observer)


@TWO
def test_a_run_on_two_devices_outlives_a_worker(tiny, unbroken, tmp_path, monkeypatch, capsys):
    expected = unbroken("ditto", "threads")

    class Killer(Quiet):
        def round(self, line):
            if line["round"] == 2:
                next(one for one in multiprocessing.active_children() if one not in others).kill()

    others = [*multiprocessing.active_children()]
    summary = on_two(tiny("ditto"), tmp_path, Killer())
    assert summary["environment"]["workers"] == 2
    assert type(expected)(tmp_path / summary["record"], summary).content() == expected.content()
    assert "the worker on cpu" in capsys.readouterr().err
    assert [*multiprocessing.active_children()] == others


def dies(*_):
    raise SystemExit


@TWO
@pytest.mark.parametrize("problem", ["dies", "error"])
def test_a_worker_that_cannot_begin_is_one_line(problem, tiny, tmp_path, monkeypatch):
    if problem == "dies":
        monkeypatch.setattr(replicas, "_begin", dies)
        expected = "has ended while it began"
    else:  # what this process knows and others do not
        monkeypatch.setattr(replicas.ProcessWorker, "start", refused(replicas.ProcessWorker.start))
        expected = "unknown dataset 'absent'"
    with pytest.raises(UserError, match=expected):
        on_two(tiny("fedavg"), tmp_path, Quiet())
    assert multiprocessing.active_children() == []
    assert list(tmp_path.iterdir()) == []


def refused(start):
    def go(self):
        config, _ = self._run
        object.__setattr__(config, "dataset", "absent")
        start(self)

    return go


@pytest.mark.parametrize(
    ("device", "executor", "text"),
    [
        ("cpu,auto", "auto", "by name where there are several"),
        ("cpu,", "auto", "unknown device ''"),
        ("cpu,cpu", "ray", "has devices of its own"),
        (",".join(["cpu"] * (available_cores() + 1)), "auto", "name fewer devices"),
    ],
)
def test_devices_that_cannot_be(device, executor, text, tiny, tmp_path):
    execution = Execution(device=device, executor=executor, results_dir=tmp_path)
    with pytest.raises(UserError, match=text):
        run_cell(resolve(tiny("fedavg")), execution, Quiet())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tf32", [False, True])
def test_workers_multiply_as_the_run_does(tf32, tiny):
    before = [backend.allow_tf32 for backend in (torch.backends.cudnn, torch.backends.cuda.matmul)]
    try:
        replicas.begin(tiny("fedavg"), Execution(device="cpu", executor="loop", tf32=tf32))
        assert torch.backends.cudnn.allow_tf32 == torch.backends.cuda.matmul.allow_tf32 == tf32
        assert torch.backends.cudnn.deterministic
    finally:
        replicas._computing.close()
    assert before == [backend.allow_tf32 for backend in (torch.backends.cudnn, torch.backends.cuda.matmul)]


@pytest.mark.parametrize("what", ["dataset", "network"])
def test_objects_of_python_are_not_known_to_workers(what, tmp_path):
    given = {"dataset": FederatedData("mine"), "network": torch.nn.Identity}[what]
    with pytest.raises(UserError, match="is known in this process alone; give one device"):
        run("fedavg", device="cpu,cpu", results_dir=tmp_path, **{what: given})
