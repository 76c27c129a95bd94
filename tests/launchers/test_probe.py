"""How many jobs ``--jobs auto`` finds; the measurement runs for real, on CPUs."""

import types

import pytest

from pfl_benchmark.engine.executors.threads import available_cores
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.launch import probe
from pfl_benchmark.launch.base import Options
from pfl_benchmark.launch.local import Processes, local
from pfl_benchmark.launch.probe import Reading, automatic_jobs, measure, most_useful
from pfl_benchmark.launch.sequential import Sequential

CPU = Execution(device="cpu")


@pytest.mark.parametrize(
    ("rates", "memory", "free", "cores", "jobs"),
    [
        ({1: 100, 2: 190, 4: 300, 8: 310}, 1, 1000, 64, 4),  # eight are hardly faster than four
        ({1: 100, 2: 190, 4: 300, 8: 600}, 1, 1000, 6, 4),  # eight need eight cores
        ({1: 100, 2: 190, 4: 300}, 30, 200, 64, 2),  # four need more than half of what is free
        ({1: 100, 2: 0}, 10, 100, 64, 1),  # two have died
        ({1: 100}, 90, 100, 64, 1),
        ({1: 100}, 1, 1000, 1, 1),
    ],
)
def test_jobs_are_doubled_as_long_as_that_pays_and_fits(rates, memory, free, cores, jobs):
    assert most_useful(lambda n: Reading(rates[n], memory), free, cores) == jobs


def test_a_gpu_is_measured(cells, monkeypatch):
    """With a GPU of the imagination, and the rest as it would be there."""
    asked = []

    def measured(jobs, config, execution):
        asked.append((jobs, config, execution.device))
        return Reading(100 * min(jobs, 4), 2**30)

    execution = Execution(device="cuda:0")
    monkeypatch.setattr(Execution, "pick_device", lambda self: types.SimpleNamespace(type="cuda"))
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (40 * 2**30, 80 * 2**30))
    monkeypatch.setattr(probe, "measure", measured)
    monkeypatch.setattr(probe, "available_cores", lambda: 16)
    assert automatic_jobs(execution, cells) == 4
    assert [jobs for jobs, _, _ in asked] == [1, 2, 4, 8]


def test_the_measurement_itself(cells):
    reading = measure(1, cells[0].config, CPU, seconds=0.1)
    assert reading.rate > 0
    assert reading.memory == 0


def test_a_job_a_core_but_not_more_than_cells(cells):
    most = Options(0, CPU, cells * 100)
    assert local(most).jobs == available_cores() == automatic_jobs(CPU, cells)
    assert isinstance(local(Options(None, CPU, cells)), Sequential)
    assert isinstance(local(Options(0, CPU, cells[:1])), Sequential)
    if available_cores() > 1:
        assert isinstance(local(Options(2, CPU, cells)), Processes)
