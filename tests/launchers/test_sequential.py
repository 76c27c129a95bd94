"""Runs one after the other: whatever becomes of one, the others are made, and nothing is made twice."""

import pytest

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.rounds import Diverged
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.launch import base
from pfl_benchmark.launch.base import unavailable
from pfl_benchmark.launch.local import Sequential
from pfl_benchmark.records.writer import Busy, RunRecord
from pfl_benchmark.studies.grid import PlannedRun


def fill(cells, execution, log):
    return Sequential(execution).run(cells, log)


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

        monkeypatch.setattr(base, "run_judged", run)
        monkeypatch.setattr(base, "PATIENCE", 0.0)

    return go


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [Diverged("it diverged"), UserError("bad"), RuntimeError("out of memory")])
def test_a_failing_cell_does_not_stop_the_others(error, script, cells, log):
    script(0.5, error, 0.6)
    outcome = fill(cells, Execution(), log)
    assert [cell.title for cell in outcome.done] == ["run 0", "run 2"]
    ((cell, problem),) = outcome.failed
    assert cell.title == "run 1"
    assert str(error) in problem
    assert bool(outcome.faults) == isinstance(error, RuntimeError)
    assert [title for title, _ in log.ends] == ["run 0", "run 1", "run 2"]


def test_a_cell_of_another_process_comes_last(script, cells, log):
    taken = Busy("another process is at it")
    script(taken, 0.5, 0.6, taken, 0.7)
    outcome = fill(cells, Execution(), log)
    assert [cell.title for cell in outcome.done] == ["run 1", "run 2", "run 0"]
    assert outcome.failed == []
    assert log.waits == 1


def test_a_folder_that_cannot_be_written_stops_everything(script, cells, log):
    script(0.5, caused(UserError("cannot write"), OSError(28, "No space left on device")), 0.6)
    with pytest.raises(UserError, match="cannot write"):
        fill(cells, Execution(), log)


def test_an_interrupt_is_passed_on(script, cells, log):
    script(0.5, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        fill(cells, Execution(), log)


def test_two_processes_make_each_cell_once(tmp_path, monkeypatch, cells, log):
    """The lock of the real runner is what is recognised; this would wait for ever if it were not let go."""
    monkeypatch.setattr(base, "PATIENCE", 0.05)
    execution = Execution(device="cpu", executor="loop", results_dir=tmp_path)
    other = RunRecord(tmp_path, cells[0].config, "fedavg")
    other.acquire()
    monkeypatch.setattr(log, "wait", lambda cells: other.release())
    outcome = fill(cells[:1], execution, log)
    assert len(outcome.done) == 1
    assert len(list(tmp_path.glob("*/done"))) == 1


def test_absent_datasets_are_named_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cells = [PlannedRun(RunConfig(dataset=name), name, ("main",)) for name in ("emnist", "emnist", "digits")]
    found = unavailable(cells, tmp_path, download=False)
    assert list(found) == [("emnist", 0)]
    assert "emnist" in found["emnist", 0]


def test_cells_of_other_embeddings_are_run(tmp_path, monkeypatch):
    """Texts read by vectors that are not here leave out the runs of these vectors alone."""
    asked = []

    def load(name, *_, embedding, **__):
        asked.append((name, embedding))
        if embedding == 300:
            raise UserError("no vectors")

    monkeypatch.setattr(base.datasets, "load", load)
    configs = [RunConfig(dataset="sent140", embedding=width) for width in (300, 50, 300)]
    cells = [PlannedRun(config, "cell", ("main",)) for config in configs]
    assert unavailable(cells, tmp_path) == {("sent140", 300): "no vectors"}
    assert asked == [("sent140", 300), ("sent140", 50)]
