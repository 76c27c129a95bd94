"""The foreman's rules, on a crew that does what a script says; no process is started."""

import dataclasses

import pytest

from benchmark.errors import UserError
from benchmark.experiment.execution import Execution
from benchmark.launch import base
from benchmark.launch.base import Ended
from benchmark.launch.foreman import ATTEMPTS, Foreman
from benchmark.launch.work import Died, Round, Started
from benchmark.studies.grid import Cell

DONE = Ended("done", {"accuracy": 0.5})


class Crew:
    """Workers that tell, one report a turn, what the script of their cell says (a list an attempt)."""

    def __init__(self, places=2, scripts=None, lacks=None):
        self._places, self._scripts, self._lacks = places, scripts or {}, lacks or {}
        self.sent, self._told = [], {}

    def places(self):
        return range(self._places)

    def can(self, place, cell):
        return cell.config.dataset not in self._lacks.get(place, ())

    def hopeless(self, cell):
        return not any(self.can(place, cell) for place in self.places())

    def send(self, place, cell):
        assert not self._told.get(place), "the cell before has not ended"
        self.sent.append((place, cell.title))
        attempts = self._scripts.get(cell.title, [[Started(2, 0), DONE]])
        self._told[place] = list(attempts.pop(0))

    def reports(self, timeout):
        return [(place, told.pop(0)) for place, told in self._told.items() if told]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(base, "PATIENCE", 0.01)


def run(crew, cells, log):
    return Foreman(crew, Execution(), log).run(cells)


def titles(cells):
    return [cell.title for cell in cells]


def test_all_cells_are_run_once(cells, log):
    crew = Crew()
    outcome = run(crew, cells, log)
    assert sorted(titles(outcome.done)) == titles(cells)
    assert [title for _, title in crew.sent] == titles(cells)
    assert {place for place, _ in crew.sent} == {0, 1}


def test_rounds_reach_the_observer(cells, log):
    crew = Crew(1, {"cell 0": [[Started(2, 1), Round({"round": 2}), DONE]]})
    run(crew, cells[:1], log)
    assert (log.starts, log.rounds) == ([1], [2])


def test_a_failing_cell_does_not_stop_the_others(cells, log):
    fault = Ended("failed", problem="RuntimeError: no", fault="Traceback")
    outcome = run(Crew(1, {"cell 1": [[fault]]}), cells, log)
    assert titles(outcome.done) == ["cell 0", "cell 2"]
    assert [(cell.title, problem) for cell, problem in outcome.failed] == [("cell 1", "RuntimeError: no")]
    assert outcome.faults == ["Traceback"]


def test_the_cell_of_a_dead_worker_comes_next(cells, log):
    crew = Crew(1, {"cell 0": [[Started(2, 0), Died("was killed")], [Started(2, 1), DONE]]})
    outcome = run(crew, cells, log)
    assert [title for _, title in crew.sent] == ["cell 0", "cell 0", "cell 1", "cell 2"]
    assert outcome.failed == []
    (note,) = log.notes
    assert "cell 0 was killed" in note


def test_a_cell_that_kills_its_workers_is_given_up(cells, log):
    deadly = [[Started(2, 0), Died("was killed (SIGKILL)")] for _ in range(ATTEMPTS)]
    outcome = run(Crew(1, {"cell 0": deadly}), cells, log)
    assert titles(outcome.done) == ["cell 1", "cell 2"]
    ((cell, problem),) = outcome.failed
    assert cell.title == "cell 0"
    assert "was killed (SIGKILL)" in problem
    assert "--jobs" in problem


def test_workers_that_cannot_even_begin_end_everything(cells, log):
    with pytest.raises(UserError, match="ended with code 1 before it had begun"):
        run(Crew(1, {"cell 0": [[Died("ended with code 1")]]}), cells, log)


def test_the_death_of_an_idle_worker_is_nobodys(cells, log):
    crew = Crew(1, {"cell 0": [[Started(2, 0), DONE, Died("was killed")]]})
    assert titles(run(crew, [cells[0]], log).done) == ["cell 0"]


def test_a_cell_of_another_process_comes_last(cells, log):
    crew = Crew(1, {"cell 0": [[Ended("busy")], [Ended("busy")], [DONE]]})
    outcome = run(crew, cells, log)
    assert titles(outcome.done) == ["cell 1", "cell 2", "cell 0"]
    assert log.waits >= 1


def test_a_folder_that_cannot_be_written_ends_everything(cells, log):
    with pytest.raises(UserError, match="no space"):
        run(Crew(2, {"cell 0": [[Ended("stop", problem="no space")]]}), cells, log)


def test_cells_go_where_their_data_are(cells, log):
    other = Cell(dataclasses.replace(cells[0].config, dataset="emnist"), "other", ())
    nowhere = Cell(dataclasses.replace(cells[0].config, dataset="cifar10"), "nowhere", ())
    crew = Crew(2, lacks={0: ("emnist", "cifar10"), 1: ("cifar10",)})
    outcome = run(crew, [other, nowhere, *cells], log)
    assert (1, "other") in crew.sent
    ((cell, problem),) = outcome.failed
    assert cell.title == "nowhere"
    assert "cifar10" in problem


@pytest.fixture
def variants(tiny):
    """Two cells that begin alike, and one that does not."""
    configs = [
        tiny("ppfe", rounds=8), tiny("ppfe", {"reduction": "none"}, rounds=8), tiny("fedper", rounds=8),
    ]  # fmt: skip
    return [Cell(config, f"cell {n}", ()) for n, config in enumerate(configs)]


def test_a_common_beginning_is_trained_by_one_worker(variants, log):
    crew = Crew(2, {"cell 0": [[Started(8, 0), Round({"round": 8}), DONE]]})
    run(crew, variants, log)
    assert crew.sent[:2] == [(0, "cell 0"), (1, "cell 2")]


def test_nobody_waits_for_a_common_beginning(variants, log):
    crew = Crew(2)
    run(crew, variants[:2], log)
    assert crew.sent == [(0, "cell 0"), (1, "cell 1")]


@pytest.mark.parametrize(("done", "chosen"), [(1, "other"), (3, "shorter"), (5, "longer")])
def test_of_several_beginnings_those_count_that_are_being_trained(done, chosen, tiny, log):
    """Stages end with rounds 2 and 4: ``longer`` shares both with ``alike``, ``shorter`` only the first."""
    hypers = {"alike": {}, "longer": {"reduction": "none"}, "shorter": {"reweight": "no"}}
    alike, *others = [Cell(tiny("ppfe", hyper, rounds=8), name, ()) for name, hyper in hypers.items()]
    before, other = (
        Cell(tiny("fedper", rounds=8, seed=n), name, ()) for n, name in enumerate(["before", "other"])
    )
    at_work = [Started(8, 0), *[Round({"round": done})] * 3, DONE]
    crew = Crew(2, {"alike": [at_work], "before": [[Started(8, 0), DONE]]})
    run(crew, [alike, before, *others, other], log)
    assert crew.sent[:3] == [(0, "alike"), (1, "before"), (1, chosen)]


def test_a_beginning_that_is_trained_is_no_reason_to_wait(variants, log):
    short = [[Started(8, 0), DONE]]
    long = [[Started(8, 0), Round({"round": 6}), Round({"round": 7}), Round({"round": 8}), DONE]]
    crew = Crew(2, {"cell 0": long, "cell 2": short})
    run(crew, [variants[0], variants[2], variants[1], Cell(variants[2].config, "cell 3", ())], log)
    assert crew.sent[:3] == [(0, "cell 0"), (1, "cell 2"), (1, "cell 1")]
