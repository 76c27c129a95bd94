"""What becomes of runs on a pool whose workers do what a script says; no process is started."""

import json
import os

import pytest

from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.launch import base
from pfl_benchmark.launch.base import Ended
from pfl_benchmark.launch.pool import ATTEMPTS, WorkerPool
from pfl_benchmark.records.writer import RunRecord
from pfl_benchmark.resolve.run import method_label
from pfl_benchmark.studies.grid import PlannedRun

DONE = Ended("done", {"accuracy": 0.5})
LOST = RuntimeError("killed by a test")


class Scripted(WorkerPool):
    """A pool whose tasks go on by one step a look: rounds that the record then has, and at last the end."""

    pause = 0.0

    def __init__(self, folder, jobs=2, scripts=None):
        super().__init__(jobs, "nowhere", Execution(results_dir=folder))
        self.scripts, self.sent, self.open, self.closed = scripts or {}, [], set(), False

    def submit(self, cells):
        return [ScriptedTask(self, cell) for cell in cells]

    def close(self):
        self.closed = True


class ScriptedTask:
    def __init__(self, pool, cell):
        assert cell.title not in pool.open, "a run is run twice at once"
        assert pool.room(len(pool.open)) > 0
        pool.open.add(cell.title)
        pool.sent.append(cell.title)
        self._pool, self._cell = pool, cell
        self._steps = list(pool.scripts.get(cell.title, [[DONE]]).pop(0))
        self._folder = RunRecord(pool._execution.results_dir, cell.config, method_label(cell.config)).folder

    def done(self):
        if isinstance(self._steps[0], int):
            rounds = self._steps.pop(0)
            self._folder.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps({"round": n + 1}) + "\n" for n in range(rounds)]
            for name in ("rounds.jsonl", "checkpoint.pt"):
                (self._folder / name).write_text("".join(lines))
                os.utime(self._folder / name, (0, 0))  # a clock so coarse that it does not move
            return False
        return True

    def result(self):
        self._pool.open.remove(self._cell.title)
        (end,) = self._steps
        if isinstance(end, Exception):
            raise end
        return end


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(base, "PATIENCE", 0.01)


@pytest.fixture
def run(tmp_path, log):
    """``run(runs, jobs, scripts)``: the outcome, and the titles of the runs in the order of submission."""

    def go(cells, jobs=2, scripts=None):
        pool = Scripted(tmp_path, jobs, scripts)
        try:
            outcome = pool.run(cells, log)
        finally:
            assert pool.closed
        return outcome, pool.sent

    return go


def titles(cells):
    return [cell.title for cell in cells]


def test_all_cells_are_run_once(cells, run):
    outcome, sent = run(cells)
    assert sorted(titles(outcome.done)) == sent == titles(cells)


def test_rounds_reach_the_observer(cells, run, log):
    run(cells[:1], 1, {"run 0": [[1, 2, 2, DONE]]})
    assert (log.starts, log.rounds) == ([0], [1, 2])


def test_a_failing_cell_does_not_stop_the_others(cells, run):
    fault = Ended("failed", problem="RuntimeError: no", fault="Traceback")
    outcome, _ = run(cells, 1, {"run 1": [[fault]]})
    assert titles(outcome.done) == ["run 0", "run 2"]
    assert [(cell.title, problem) for cell, problem in outcome.failed] == [("run 1", "RuntimeError: no")]
    assert outcome.faults == ["Traceback"]


def test_the_cell_of_a_lost_worker_comes_next(cells, run, log):
    outcome, sent = run(cells, 1, {"run 0": [[1, LOST], [2, DONE]]})
    assert sent == ["run 0", "run 0", "run 1", "run 2"]
    assert outcome.failed == []
    assert log.rounds == [1, 1, 2]  # the second begins where the first has been
    (note,) = log.notes
    assert "run 0 was lost (killed by a test)" in note


def test_a_cell_that_loses_its_workers_is_given_up(cells, run):
    outcome, _ = run(cells, 1, {"run 0": [[1, LOST] for _ in range(ATTEMPTS)]})
    assert titles(outcome.done) == ["run 1", "run 2"]
    ((cell, problem),) = outcome.failed
    assert cell.title == "run 0"
    assert "killed by a test" in problem
    assert "--jobs" in problem


def test_workers_that_cannot_even_begin_end_everything(cells, run):
    with pytest.raises(UserError, match=r"lost before it had begun \(killed by a test\)"):
        run(cells, 1, {"run 0": [[LOST]]})


def test_a_cell_of_another_process_comes_last(cells, run, log):
    busy = [Ended("busy")]
    outcome, _ = run(cells, 1, {"run 0": [busy, busy, [DONE]]})
    assert titles(outcome.done) == ["run 1", "run 2", "run 0"]
    assert log.waits >= 1


def test_a_folder_that_cannot_be_written_ends_everything(cells, run):
    with pytest.raises(UserError, match="no space"):
        run(cells, 2, {"run 0": [[Ended("stop", problem="no space")]]})


@pytest.fixture
def variants(tiny):
    """Two runs that begin alike, and one that does not."""
    configs = [
        tiny("ppfe", rounds=8), tiny("ppfe", {"reduction": "none"}, rounds=8), tiny("fedper", rounds=8),
    ]  # fmt: skip
    return [PlannedRun(config, f"run {n}", ()) for n, config in enumerate(configs)]


def test_a_common_beginning_is_trained_by_one_worker(variants, run):
    assert run(variants, 2, {"run 0": [[8, DONE]]})[1] == ["run 0", "run 2", "run 1"]


def test_nobody_waits_for_a_common_beginning(variants, run):
    assert run(variants[:2])[1] == ["run 0", "run 1"]


@pytest.mark.parametrize(("done", "chosen"), [(1, "other"), (3, "shorter"), (5, "longer")])
def test_of_several_beginnings_those_count_that_are_being_trained(done, chosen, tiny, run):
    """Stages end with rounds 2 and 4: ``longer`` shares both with ``alike``, ``shorter`` only the first."""
    hypers = {"alike": {}, "longer": {"reduction": "none"}, "shorter": {"reweight": "no"}}
    alike, *others = [PlannedRun(tiny("ppfe", hyper, rounds=8), name, ()) for name, hyper in hypers.items()]
    before, other = (
        PlannedRun(tiny("fedper", rounds=8, seed=n), name, ()) for n, name in enumerate(["before", "other"])
    )
    scripts = {"alike": [[done] * 9 + [DONE]], "before": [[1, DONE]]}
    assert run([alike, before, *others, other], 2, scripts)[1][:3] == ["alike", "before", chosen]
