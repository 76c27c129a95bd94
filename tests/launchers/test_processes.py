"""Cells in processes of their own: real ones, one of which is killed, and all of which are interrupted."""

import json
import os
import signal
import time
from multiprocessing import active_children

import pytest
from watching import Log

from benchmark.engine.executors.threads import available_cores
from benchmark.experiment.execution import Execution
from benchmark.launch.base import Ended
from benchmark.launch.cores import confined
from benchmark.launch.processes import ProcessCrew, Processes, ended_how, own_gpu
from benchmark.launch.work import Died
from benchmark.studies.grid import Cell

pytestmark = pytest.mark.skipif(available_cores() < 2, reason="two workers need two cores")
PATIENCE = 300  # seconds, for a machine that is busy with other things
ROUNDS = 120  # of the run whose worker is killed after 20: enough for the news to arrive before the last


def side_by_side(cells, folder, log):
    execution = Execution(device="cpu", executor="loop", results_dir=folder, checkpoint_seconds=0)
    with Processes(2, execution) as launcher:
        return launcher.run(cells, execution, log)


def find(folder, cell):
    (found,) = folder.glob(f"*-{cell.config.hash}")
    return found


class Murderer:
    """The observer of the first cell, whose worker is killed after round 20, once."""

    def __init__(self):
        self.starts, self.armed = [], True

    def start(self, rounds, done):
        self.starts.append(done)

    def round(self, line):
        if self.armed and line["round"] == 20:
            self.armed = False
            (worker,) = (process for process in active_children() if process.name == "worker-0")
            os.kill(worker.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def shop(tiny, tmp_path_factory):
    """Four cells on two workers, the first of which is killed at the first cell."""
    folder, log = tmp_path_factory.mktemp("shop"), Log()
    long = Cell(tiny("fedper", rounds=ROUNDS), "long", ())
    cells = [
        long,
        Cell(tiny("ditto"), "ditto", ()),
        Cell(tiny("fedavg", lr=1e30), "diverging", ()),
        Cell(tiny("ppfe", rounds=8), "ppfe", ()),
    ]
    murderer = Murderer()
    log.begin = lambda cell: murderer if cell is long else log
    outcome = side_by_side(cells, folder, log)
    log.starts = murderer.starts
    return cells, folder, log, outcome


def test_workers_make_the_records_that_this_process_makes(shop, launch, tmp_path):
    _, folder, _, outcome = shop
    assert sorted(cell.title for cell in outcome.done) == ["ditto", "long", "ppfe"]
    for cell in outcome.done:
        alone = launch(cell.config, tmp_path)
        beside = type(alone)(find(folder, cell), {})
        assert beside.content() == alone.content(), cell.title


def test_a_failing_cell_is_reported_and_the_others_are_made(shop):
    _, folder, log, outcome = shop
    ((cell, problem),) = outcome.failed
    assert cell.title == "diverging"
    assert "training diverged" in problem
    assert (find(folder, cell) / "failed.json").exists()
    assert sorted(title for title, _ in log.ends) == ["ditto", "diverging", "long", "ppfe"]


def test_the_cell_of_a_killed_worker_goes_on_from_its_checkpoint(shop):
    cells, folder, log, _ = shop
    assert any("long was killed (SIGKILL)" in note for note in log.notes)
    assert json.loads((find(folder, cells[0]) / "summary.json").read_text())["resumed"] == 1
    first, second = log.starts
    assert first == 0
    assert 20 <= second < ROUNDS


def test_workers_have_their_share_of_the_cores(shop):
    cells, folder, _, _ = shop
    environment = json.loads((find(folder, cells[3]) / "summary.json").read_text())["environment"]
    assert environment["cores"] in (available_cores() // 2, (available_cores() + 1) // 2)
    assert environment["jobs"] == 2


def test_an_interrupt_ends_all_workers_and_leaves_their_checkpoints(tiny, launch, log, tmp_path):
    cells = [Cell(tiny("fedper", rounds=100_000, eval_every=0, seed=n), f"cell {n}", ()) for n in (0, 1)]

    class Interrupter(type(log)):
        def round(self, line):
            super().round(line)
            if line["round"] == 3:  # a terminal sends it to everybody: workers leave it to us
                for process in active_children():
                    os.kill(process.pid, signal.SIGINT)
            if self.rounds.count(30) == 2:
                raise KeyboardInterrupt

    watcher = Interrupter()
    with pytest.raises(KeyboardInterrupt):
        side_by_side(cells, tmp_path, watcher)
    assert active_children() == []
    assert watcher.notes == []
    for cell in cells:
        assert (find(tmp_path, cell) / "checkpoint.pt").exists()
        assert not list(tmp_path.rglob("*.tmp"))
        assert not (find(tmp_path, cell) / ".lock").exists()


def test_a_worker_that_is_still_starting_leaves_the_interrupt_to_us(cells, tmp_path):
    crew = ProcessCrew(2, Execution(device="cpu", executor="loop", results_dir=tmp_path))
    try:
        for place in crew.places():  # importing takes seconds, so that the signal comes meanwhile
            crew.send(place, cells[place])
        for process in active_children():
            os.kill(process.pid, signal.SIGINT)
        ends, deadline = {}, time.monotonic() + PATIENCE
        while len(ends) < 2:
            assert time.monotonic() < deadline
            for place, report in crew.reports(1):
                assert not isinstance(report, Died)
                if isinstance(report, Ended):
                    ends[place] = report
        assert {end.kind for end in ends.values()} == {"done"}
    finally:
        crew.close()


def test_shares_of_the_cores_are_disjoint_and_are_all_of_them(monkeypatch):
    monkeypatch.delenv("PFL_CORES", raising=False)
    before = os.sched_getaffinity(0)
    shares = []
    for place in range(2):
        with confined(place, 2):
            shares.append(os.sched_getaffinity(0))
            assert available_cores() == len(shares[-1])
    assert shares[0] | shares[1] == before
    assert not shares[0] & shares[1]
    assert os.sched_getaffinity(0) == before
    assert "PFL_CORES" not in os.environ


def test_several_gpus_are_taken_in_turn(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    shown = [own_gpu(place, Execution()).get("CUDA_VISIBLE_DEVICES") for place in range(3)]
    assert shown == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert own_gpu(1, Execution(device="cuda"))["CUDA_VISIBLE_DEVICES"] == "6"
    assert own_gpu(1, Execution(device="cuda:0")) == {}


def test_ends_in_words():
    assert ended_how(-9) == "was killed (SIGKILL)"
    assert ended_how(1) == "ended with code 1"
