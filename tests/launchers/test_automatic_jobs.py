"""How many jobs ``--jobs auto`` stands for."""

import types

import pytest

from pfl_benchmark.engine.executors.threads import available_cores
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.launch import local as module
from pfl_benchmark.launch.base import Options
from pfl_benchmark.launch.local import Processes, Sequential, automatic_jobs, local

CPU = Execution(device="cpu")


@pytest.mark.parametrize(
    ("device", "gpus", "cores", "jobs"),
    [("auto", 1, 16, 4), ("cuda", 2, 16, 8), ("cuda:1", 2, 16, 4), ("auto", 8, 6, 6), ("auto", 1, 1, 1)],
)
def test_four_jobs_share_a_gpu_if_there_are_cores(device, gpus, cores, jobs, monkeypatch):
    """With GPUs of the imagination."""
    monkeypatch.setattr(Execution, "pick_device", lambda self: types.SimpleNamespace(type="cuda"))
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr(module, "available_cores", lambda: cores)
    assert automatic_jobs(Execution(device=device)) == jobs


def test_a_job_a_core_but_not_more_than_cells(cells):
    most = Options(0, CPU, cells * 100)
    assert local(most).jobs == available_cores() == automatic_jobs(CPU)
    assert isinstance(local(Options(None, CPU, cells)), Sequential)
    assert isinstance(local(Options(0, CPU, cells[:1])), Sequential)
    if available_cores() > 1:
        assert isinstance(local(Options(2, CPU, cells)), Processes)
