"""Runs as submitit's jobs, which its local executor runs on this machine; and what is refused."""

import os
import shutil
import signal
import sys

import pytest
from watching import Killer

from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.launch import find
from pfl_benchmark.launch.base import Options
from pfl_benchmark.launch.slurm import Slurm, parameters
from pfl_benchmark.records.environment import CORES_VARIABLE
from pfl_benchmark.studies.grid import PlannedRun

TIME = [("time", "30")]


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGUSR2], ids=["lost", "at the end of its time"])
def test_a_run_as_a_job_goes_on(by, tiny, launch, tmp_path, monkeypatch):
    """After its worker was killed, and after Slurm's signal, at which submitit queues the job again."""
    pytest.importorskip("submitit", reason="the optional package submitit is not installed")
    monkeypatch.setattr(Slurm, "pause", 0.05)
    monkeypatch.setenv(CORES_VARIABLE, "1")  # tiny tensors lose much by a second thread
    cells = [
        PlannedRun(tiny("fedper", rounds=60), "long", ()),
        PlannedRun(tiny("fedavg", lr=1e30), "diverging", ()),
    ]
    folder = tmp_path / "results"
    execution = Execution(device="cpu", executor="loop", results_dir=folder, checkpoint_seconds=0)
    options, watcher = Options(None, execution, cells, {"slurm": TIME}), Killer(3, by)
    with Slurm(options, cluster="local") as launcher:
        outcome = launcher.run(cells, watcher)
    assert [cell.title for cell in outcome.done] == ["long"]
    ((cell, problem),) = outcome.failed
    assert (cell.title, "training diverged" in problem) == ("diverging", True)
    lost = [note for note in watcher.notes if "the worker at long was lost" in note]
    assert len(watcher.notes) == len(lost) == (by == signal.SIGKILL)
    (record,) = folder.glob("fedper-*")
    alone = launch(cells[0].config, tmp_path / "alone")
    beside = type(alone)(record, {})
    assert beside.content() == alone.content()
    assert '"resumed": 1' in (record / "summary.json").read_text()


def test_options_of_sbatch():
    given = [("time", "1-02:30:00"), ("partition", "gpu"), ("cpus-per-task", "4"), ("gpus_per_node", "1")]
    assert parameters(given) == {
        "timeout_min": 1590,
        "cpus_per_task": 4,
        "gpus_per_node": 1,
        "slurm_additional_parameters": {"partition": "gpu"},
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([("partition", "gpu")], "add --slurm time=MINUTES"),
        ([("time", "soon")], "time=soon: expected minutes"),
        ([("time", "0")], "expected minutes"),
        ([*TIME, ("nodes", "2")], "a run is one task on one node"),
        ([*TIME, ("cpus-per-task", "many")], "cpus_per_task=many: expected a whole number"),
    ],
)
def test_options_that_make_no_sense(given, message):
    with pytest.raises(UserError, match=message):
        parameters(given)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match=r"pip install submitit.*--launcher local"):
        find("slurm")(Options(2, Execution(), [], {"slurm": TIME}))


def test_without_slurm(monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="needs Slurm's sbatch and srun"):
        find("slurm")(Options(2, Execution(), [], {"slurm": TIME}))


def test_an_array_as_sbatch_gets_it(cells, tmp_path, monkeypatch):
    """With an sbatch that takes what it is given."""
    pytest.importorskip("submitit")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sbatch", "srun", "scancel", "sacct"):
        (tools / name).write_text(f'#!/bin/sh\ncp "$1" "{tmp_path}/{name}.given" 2>/dev/null\necho job 7\n')
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    execution = Execution(results_dir=tmp_path / "results")
    options = Options(2, execution, cells, {"slurm": [*TIME, ("partition", "gpu"), ("reservation", "mine")]})
    launcher = find("slurm")(options)
    assert launcher.jobs == 2
    assert [job.job_id for job in launcher.submit(cells)] == ["7_0", "7_1", "7_2"]
    text = (tmp_path / "sbatch.given").read_text()
    for line in ("array=0-2%2", "time=30", "partition=gpu", "reservation=mine"):
        assert f"#SBATCH --{line}\n" in text
    launcher.submit(cells[:1])
    assert "#SBATCH --array" not in (tmp_path / "sbatch.given").read_text()
    assert [launcher.room(at_work) for at_work in (0, 1, 2)] == [1000, 1, 0]
    launcher.close()


def test_an_array_that_slurm_refuses(cells, tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    for name in ("sbatch", "srun"):
        (tmp_path / name).write_text("#!/bin/sh\necho invalid partition >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    launcher = find("slurm")(Options(None, Execution(results_dir=tmp_path), cells, {"slurm": TIME}))
    with pytest.raises(UserError, match=r"Slurm does not take the jobs: .*invalid partition"):
        launcher.submit(cells)
