"""Runs on a real Ray cluster of this machine, two workers, one of which is killed in the middle of a run."""

import contextlib
import dataclasses
import json
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from watching import Killer, Log

from pfl_benchmark.engine.executors.threads import available_cores
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.ray import connect
from pfl_benchmark.launch.base import Options
from pfl_benchmark.launch.ray_cluster import RayCluster
from pfl_benchmark.records.writer import Busy, RunRecord
from pfl_benchmark.studies.grid import PlannedRun

pytestmark = [
    pytest.mark.skipif(not find_spec("ray"), reason="the optional package ray is not installed"),
    pytest.mark.skipif(available_cores() < 2, reason="two workers need two cores"),
]

ROUNDS, KILLED = 60, 3  # long enough for the news of a round to arrive here before the last


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory):
    """One cluster for all tests of this module; its workers find no downloaded data."""
    import ray  # only here: it takes half a second

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("PFL_DATA_DIR", raising=False)
        connect(ray, "local")
        yield
        ray.shutdown()


@pytest.fixture
def start(tmp_path):
    """``start(runs)``: a launcher of two jobs that checkpoint after every round."""
    with contextlib.ExitStack() as stack:

        def go(cells):
            folder = tmp_path / "results"
            folder.mkdir()
            execution = Execution(
                device="cpu", executor="loop", results_dir=folder, data_dir=tmp_path, checkpoint_seconds=0
            )
            launcher = stack.enter_context(RayCluster(Options(2, execution, cells)))
            return launcher, folder

        yield go


@pytest.fixture
def work(tiny):
    """A run that takes seconds, a common one, and one that diverges."""
    long = PlannedRun(tiny("fedper", rounds=ROUNDS, local_epochs=5, samples_per_client=60), "long", ())
    return [
        long,
        PlannedRun(tiny("ppfe", rounds=8), "ppfe", ()),
        PlannedRun(tiny("fedavg", lr=1e30), "diverging", ()),
    ]


@pytest.fixture(scope="module")
def alone(launch, tmp_path_factory):
    """``alone(run)``: the record that this process makes of a run, once."""
    folder, made = tmp_path_factory.mktemp("alone"), {}

    def get(cell):
        if cell.config.hash not in made:
            made[cell.config.hash] = launch(cell.config, folder)
        return made[cell.config.hash]

    return get


def check(outcome, watcher, cells, folder, alone):
    """The long run has gone on from its checkpoint, and all records are those of this process."""
    assert sorted(cell.title for cell in outcome.done) == ["long", "ppfe"]
    ((cell, problem),) = outcome.failed
    assert cell.title == "diverging"
    assert "training diverged: the loss of client" in problem
    assert watcher.begun.count("long") == 2
    assert any("the worker at long was lost" in note for note in watcher.notes)
    for cell in outcome.done:
        expected = alone(cell)
        (record,) = folder.glob(f"*-{cell.config.hash}")
        assert type(expected)(record, {}).content() == expected.content(), cell.title
        summary = json.loads((record / "summary.json").read_text())
        assert summary["resumed"] == (cell.title == "long")
        assert (summary["environment"]["cores"], summary["environment"]["jobs"]) == (
            available_cores() // 2,
            2,
        )
        assert {"checkpoint.pt", ".lock"}.isdisjoint(path.name for path in record.iterdir())
    (failed,) = folder.glob(f"*-{cells[2].config.hash}")
    assert json.loads((failed / "failed.json").read_text())["reason"] == problem
    assert f"The record {failed.name} ends with round" in problem


def test_records_are_those_of_this_process_and_a_killed_worker_is_replaced(start, work, alone, capfd):
    launcher, folder = start(work)
    assert launcher.jobs == 2
    assert launcher.unavailable(work) == {}
    elsewhere = PlannedRun(dataclasses.replace(work[0].config, dataset="emnist"), "elsewhere", ())
    absent = launcher.unavailable([*work, elsewhere])
    assert list(absent) == [("emnist", 0)]
    assert "on Ray worker" in absent["emnist", 0]
    assert "--data-dir" in absent["emnist", 0]
    watcher = Killer(KILLED)
    outcome = launcher.run(work, watcher)
    assert capfd.readouterr() == ("", "")
    check(outcome, watcher, work, folder, alone)
    assert not list(Path(tempfile.gettempdir()).glob(f"pfl-benchmark-{launcher._scratch}"))


def test_an_interrupt_ends_the_workers_and_leaves_their_checkpoints(tiny, tmp_path):
    cell = PlannedRun(tiny("fedper", rounds=100_000, eval_every=0), "endless", ())
    execution = Execution(device="cpu", executor="loop", results_dir=tmp_path, checkpoint_seconds=0)

    class Interrupter(Log):
        def round(self, line):
            if line["round"] == 20:
                raise KeyboardInterrupt

    def run():
        with RayCluster(Options(1, execution, [cell])) as launcher:
            launcher.run([cell], Interrupter())

    with pytest.raises(KeyboardInterrupt):
        run()
    assert len(list(tmp_path.glob("*/checkpoint.pt"))) == 1
    record, deadline = RunRecord(tmp_path, cell.config, "fedper"), time.monotonic() + 60
    while True:  # until the worker is gone, and its lock with it
        try:
            record.acquire()
            break
        except Busy:
            assert time.monotonic() < deadline
    record.release()
