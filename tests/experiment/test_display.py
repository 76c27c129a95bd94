"""The display of several runs at once: lines into a file, bars on a terminal."""

import dataclasses

import pytest

from pfl_benchmark.experiment import display
from pfl_benchmark.experiment.display import RunsProgress
from pfl_benchmark.studies.grid import PlannedRun

SUMMARY = {"accuracy": 0.5}


@pytest.fixture
def four(tiny):
    """Four runs of ten seconds each, as they are expected to take."""
    config = tiny("fedavg")
    cells = [PlannedRun(dataclasses.replace(config, seed=n), f"run {n}", ()) for n in range(4)]
    return cells, {cell.config.hash: 10.0 for cell in cells}


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass as the test says."""
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def test_the_time_left_counts_on_all_jobs(four, clock, capsys):
    cells, estimates = four
    with RunsProgress(cells, estimates, jobs=2) as progress:
        rows = [progress.begin(cell) for cell in cells[:2]]
        for row in rows:
            row.start(10, 0)
        clock(20)  # twice as long as expected
        rows[1].round({"round": 5})
        progress.end(cells[0], SUMMARY, "")
    # Half of run 1, then one of the two others: 10 + 20; beside it the other: 20.
    assert capsys.readouterr().err == "[1/4] run 0: accuracy 50.00 %  (20.0 s, about 30.0 s left)\n"


def test_a_line_for_every_end_and_every_note(four, clock, capsys):
    cells, estimates = four
    with RunsProgress(cells[:2], estimates, jobs=2) as progress:
        progress.begin(cells[0])
        progress.begin(cells[1])
        progress.note("a worker has died")
        progress.begin(cells[1])
        progress.end(cells[1], None, "it diverged")
        progress.end(cells[0], SUMMARY, "")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  (")[0] for line in lines] == [
        "a worker has died", "[1/2] run 1: no result: it diverged", "[2/2] run 0: accuracy 50.00 %",
    ]  # fmt: skip


def test_a_bar_for_every_running_cell(four, monkeypatch):
    monkeypatch.setattr(display, "is_interactive", lambda stream: True)
    cells, estimates = four
    progress = RunsProgress(cells, estimates, jobs=2)
    shown = lambda: [task.description.strip() for task in progress.bars.tasks]  # noqa: E731
    first, second = (progress.begin(cell) for cell in cells[:2])
    first.start(10, 0)
    second.start(10, 4)
    assert shown() == ["cells", "run 0", "run 1"]
    progress.begin(cells[1]).start(10, 6)  # again, after the death of its worker
    assert shown() == ["cells", "run 0", "run 1"]
    assert progress.bars.tasks[-1].completed == 6
    progress.end(cells[0], SUMMARY, "")
    assert shown() == ["cells", "run 1"]
