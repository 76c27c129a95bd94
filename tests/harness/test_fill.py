"""Filling cells: whatever becomes of one, the others are made, and nothing is made twice."""

import threading

import pytest

from benchmark.engine.config import RunConfig
from benchmark.engine.records import RunRecord
from benchmark.engine.rounds import Diverged
from benchmark.errors import UserError
from benchmark.runner import Execution, run_cell, with_hyper
from benchmark.studies import fill as filling
from benchmark.studies.estimate import Estimator
from benchmark.studies.fill import fill, unavailable
from benchmark.studies.grid import Cell

TINY = RunConfig(
    algo="fedavg",
    dataset="digits",
    clients=6,
    participation=0.4,
    samples_per_client=20,
    test_samples_per_client=10,
    rounds=2,
    local_epochs=1,
)
CELLS = [Cell(TINY, f"cell {n}", ("main",)) for n in range(3)]


class Log:
    """A watcher that remembers."""

    def __init__(self):
        self.ends, self.waits = [], 0

    def begin(self, cell):
        return self

    def end(self, cell, summary, problem):
        self.ends.append((cell.title, problem))

    def wait(self, cells):
        self.waits += 1

    def start(self, rounds, done):
        pass

    def round(self, line):
        pass


@pytest.fixture
def script(monkeypatch):
    """``script(0.5, error)``: runs give these accuracies in turn; exceptions are raised."""

    def go(*results):
        left = list(results)

        def run(config, execution, observer):
            result = left.pop(0)
            if isinstance(result, BaseException):
                raise result
            return {"accuracy": result}

        monkeypatch.setattr(filling, "run_cell", run)
        monkeypatch.setattr(filling, "_PATIENCE", 0.0)

    return go


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [Diverged("it diverged"), UserError("bad"), RuntimeError("out of memory")])
def test_a_failing_cell_does_not_stop_the_others(error, script):
    script(0.5, error, 0.6)
    log = Log()
    outcome = fill(CELLS, Execution(), log)
    assert [cell.title for cell in outcome.done] == ["cell 0", "cell 2"]
    ((cell, problem),) = outcome.failed
    assert cell.title == "cell 1"
    assert str(error) in problem
    assert bool(outcome.faults) == isinstance(error, RuntimeError)
    assert [title for title, _ in log.ends] == ["cell 0", "cell 1", "cell 2"]


def test_a_cell_of_another_process_comes_last(script):
    taken = caused(UserError("another process is at it"), BlockingIOError())
    script(taken, 0.5, 0.6, taken, 0.7)
    log = Log()
    outcome = fill(CELLS, Execution(), log)
    assert [cell.title for cell in outcome.done] == ["cell 1", "cell 2", "cell 0"]
    assert outcome.failed == []
    assert log.waits == 1


def test_a_folder_that_cannot_be_written_stops_everything(script):
    script(0.5, caused(UserError("cannot write"), OSError(28, "No space left on device")), 0.6)
    with pytest.raises(UserError, match="cannot write"):
        fill(CELLS, Execution(), Log())


def test_an_interrupt_is_passed_on(script):
    script(0.5, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        fill(CELLS, Execution(), Log())


def test_two_processes_make_each_cell_once(tmp_path, monkeypatch):
    """The lock of the real runner is what `fill` recognises."""
    monkeypatch.setattr(filling, "_PATIENCE", 0.05)
    execution = Execution(device="cpu", executor="loop", results_dir=tmp_path)
    other = RunRecord(tmp_path, TINY, "fedavg")
    other.acquire()
    log = Log()
    thread = threading.Timer(0.3, other.release)
    thread.start()
    outcome = fill(CELLS[:1], execution, log)
    thread.join()
    assert log.waits >= 1
    assert len(outcome.done) == 1
    assert len(list(tmp_path.glob("*/done"))) == 1


def test_absent_datasets_are_named_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cells = [Cell(RunConfig(dataset=name), name, ("main",)) for name in ("emnist", "emnist", "digits")]
    found = unavailable(cells, tmp_path, download=False)
    assert list(found) == ["emnist"]
    assert "emnist" in found["emnist"]


@pytest.mark.parametrize("algo", ["fedavg", "ppfe", "fedavg-ft"])
def test_planned_samples_are_those_that_are_trained_on(algo, tmp_path):
    config = with_hyper(RunConfig(**{**TINY.to_dict(), "algo": algo, "rounds": 6, "hyper": {}}), {})
    execution = Execution(device="cpu", executor="loop", results_dir=tmp_path)
    summary = run_cell(config, execution, Log())
    estimator = Estimator([], execution)
    seconds = estimator.seconds(config)
    trained = summary["samples"] + summary["adaptation_samples"]
    assert seconds / estimator.rate(config) == pytest.approx(trained)
    assert "measurement" in estimator.basis["digits"]


def test_estimates_come_from_records_of_this_machine(tmp_path):
    from benchmark.store import Store

    execution = Execution(device="cpu", executor="loop", results_dir=tmp_path)
    summary = run_cell(with_hyper(TINY, {}), execution, Log())
    estimator = Estimator(Store.scan(tmp_path).records(), execution)
    assert estimator.seconds(with_hyper(TINY, {})) == pytest.approx(summary["seconds"], rel=1e-3)
    assert estimator.basis["digits"] == "from 1 finished run of this machine"
    elsewhere = Estimator(Store.scan(tmp_path).records(), Execution(device="cpu", executor="threads"))
    elsewhere.seconds(TINY)
    assert "measurement" in elsewhere.basis["digits"]
