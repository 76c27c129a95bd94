"""Runs in processes of their own: real ones, one of which is killed, and all of which are interrupted."""

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path

import pytest
from watching import Killer, Log

from pfl_benchmark.engine.executors.threads import available_cores
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.processes import confined, own_gpu
from pfl_benchmark.launch.local import Processes
from pfl_benchmark.studies.grid import PlannedRun

pytestmark = pytest.mark.skipif(available_cores() < 2, reason="two workers need two cores")
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300  # seconds, for a machine that is busy with other things
ROUNDS = 120  # of the run whose worker is killed after 20: enough for the news to arrive before the last


def side_by_side(cells, folder, log):
    execution = Execution(device="cpu", executor="loop", results_dir=folder, checkpoint_seconds=0)
    with Processes(2, execution) as launcher:
        return launcher.run(cells, log)


def until(happened):
    """Wait for something."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ended(process):
    """Whether a process is gone, or a zombie that nobody has asked for its end."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def find(folder, cell):
    (found,) = folder.glob(f"*-{cell.config.hash}")
    return found


@pytest.fixture(scope="module")
def filled(tiny, tmp_path_factory):
    """Three runs on two workers, the first of which is killed at the first cell."""
    folder, log = tmp_path_factory.mktemp("filled"), Killer(20)
    cells = [
        PlannedRun(tiny("fedper", rounds=ROUNDS), "long", ()),
        PlannedRun(tiny("fedavg", lr=1e30), "diverging", ()),
        PlannedRun(tiny("ppfe", rounds=8), "ppfe", ()),
    ]
    return cells, folder, log, side_by_side(cells, folder, log)


def test_workers_make_the_records_that_this_process_makes(filled, launch, tmp_path):
    _, folder, _, outcome = filled
    assert sorted(cell.title for cell in outcome.done) == ["long", "ppfe"]
    for cell in outcome.done:
        alone = launch(cell.config, tmp_path)
        beside = type(alone)(find(folder, cell), {})
        assert beside.content() == alone.content(), cell.title


def test_a_failing_cell_is_reported_and_the_others_are_made(filled):
    _, folder, log, outcome = filled
    ((cell, problem),) = outcome.failed
    assert cell.title == "diverging"
    assert "training diverged" in problem
    assert (find(folder, cell) / "failed.json").exists()
    assert sorted(title for title, _ in log.ends) == ["diverging", "long", "ppfe"]


def test_the_cell_of_a_killed_worker_goes_on_from_its_checkpoint(filled):
    cells, folder, log, _ = filled
    (note,) = log.notes
    assert "the worker at long was lost" in note
    assert json.loads((find(folder, cells[0]) / "summary.json").read_text())["resumed"] == 1
    assert log.starts == [0, 0]
    second = log.rounds.index(1, 1)  # where the second worker begins, with the rounds that the first has left
    assert log.rounds[:second] == list(range(1, second + 1))
    assert log.rounds[second:] == list(range(1, ROUNDS + 1))


def test_workers_have_their_share_of_the_cores(filled):
    cells, folder, _, _ = filled
    environment = json.loads((find(folder, cells[2]) / "summary.json").read_text())["environment"]
    assert environment["cores"] in (available_cores() // 2, (available_cores() + 1) // 2)
    assert environment["jobs"] == 2


def test_a_worker_that_is_told_to_end_is_replaced(tiny, tmp_path):
    """As one that is killed; the signal is no fault of the method, and does not reach the next run."""
    cells = [PlannedRun(tiny("fedper", rounds=ROUNDS), "long", ())]
    cells += [PlannedRun(tiny("fedper", rounds=3, seed=n), f"run {n}", ()) for n in (1, 2, 3)]
    log = Killer(20, signal.SIGTERM)
    outcome = side_by_side(cells, tmp_path, log)
    assert outcome.failed == []
    assert sorted(cell.title for cell in outcome.done) == ["long", "run 1", "run 2", "run 3"]
    (note,) = log.notes
    assert "the worker at long was lost" in note


def test_an_interrupt_ends_all_workers_and_leaves_their_checkpoints(tiny, tmp_path, monkeypatch):
    """Signals that a terminal sends to everybody come while workers begin, and while they work."""
    monkeypatch.setattr("pfl_benchmark.launch.local.GRACE", PATIENCE)
    cells = [PlannedRun(tiny("fedper", rounds=100_000, eval_every=0, seed=n), f"run {n}", ()) for n in (0, 1)]

    class Interrupter(Log):
        def start(self, rounds, done):
            interrupt_workers()

        def round(self, line):
            super().round(line)
            if line["round"] == 3:
                interrupt_workers()
            if self.rounds.count(30) == 2:
                raise KeyboardInterrupt

    def interrupt_workers():
        for process in active_children():
            os.kill(process.pid, signal.SIGINT)

    watcher = Interrupter()
    with pytest.raises(KeyboardInterrupt):
        side_by_side(cells, tmp_path, watcher)
    assert active_children() == []
    assert watcher.notes == []
    for cell in cells:
        assert (find(tmp_path, cell) / "checkpoint.pt").exists()
        assert not list(tmp_path.rglob("*.tmp"))
        assert not (find(tmp_path, cell) / ".lock").exists()


def test_workers_end_with_the_process_that_began_them(tmp_path):
    """Also if it is killed, and can say nothing."""
    script = """
import sys
from pathlib import Path
from multiprocessing import active_children
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.launch.local import Processes
from pfl_benchmark.resolve.run import with_hyper
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.studies.grid import PlannedRun
config = with_hyper(RunConfig(
    algo="fedper", dataset="digits", clients=6, samples_per_client=20, test_samples_per_client=10,
    rounds=100_000, eval_every=0), {})
if __name__ == "__main__":
    execution = Execution(device="cpu", executor="loop", results_dir=Path(sys.argv[1]), checkpoint_seconds=0)
    Processes(1, execution).submit([PlannedRun(config, "run", ())])
    print(*[process.pid for process in active_children()], flush=True)
    sys.stdin.read()
"""
    (tmp_path / "main.py").write_text(script)
    words = [sys.executable, str(tmp_path / "main.py"), str(tmp_path / "results")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        worker = int(parent.stdout.readline())
        until(lambda: list(tmp_path.glob("results/*/checkpoint.pt")))
        parent.kill()
    until(lambda: ended(worker))
    assert list(tmp_path.glob("results/*/checkpoint.pt"))
    assert not list(tmp_path.rglob(".lock"))


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
    shown = [own_gpu(place, "auto").get("CUDA_VISIBLE_DEVICES") for place in range(3)]
    assert shown == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert own_gpu(1, "cuda")["CUDA_VISIBLE_DEVICES"] == "6"
    assert own_gpu(1, "cuda:0") == {}


@pytest.mark.skipif(available_cores() < 2, reason="one core")
@pytest.mark.parametrize(
    "call", ["grid(['fedavg', 'local'], jobs=2, device='cpu', ", "run('fedavg', device='cpu,cpu', "]
)
def test_a_script_that_workers_would_run_again(tmp_path, call):
    """They end without a word, and the script's error says what to do."""
    script = f"import pfl_benchmark\npfl_benchmark.{call}setting='digits-s2', rounds=1)\n"
    (tmp_path / "main.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (
        done.stderr.rstrip()
        .splitlines()[-1]
        .endswith("keep what the script runs under `if __name__ == '__main__':`")
    )
    assert "spawn" not in done.stderr
    assert not list(tmp_path.rglob("rounds.jsonl"))
