"""Functions that a run calls, and what is left when one of them ends it."""

import dataclasses
import signal
import sys

import pytest

from pfl_benchmark import compare_records, load_records, run
from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.errors import UserError
from pfl_benchmark.present.page.command import command
from pfl_benchmark.records.record import read_record
from pfl_benchmark.studies.blocks import blocks_of
from tests.helpers.python import TINY

LONG = {**TINY, "rounds": 6, "eval_every": 2}
UNTIMED = ("seconds", "samples_per_second", "environment")


def without_times(values):
    return {name: value for name, value in values.items() if name not in (*UNTIMED, "seconds_closing")}


def test_they_are_called_with_the_lines_on_record(tmp_path):
    rounds, evaluations = [], []
    record = run(
        "fedavg", results_dir=tmp_path, on_round=rounds.append, on_evaluation=evaluations.append, **LONG
    )
    assert rounds == record.rounds
    assert evaluations == [line for line in record.rounds if "accuracy" in line]
    assert len(evaluations) == 3
    run("fedavg", results_dir=tmp_path, on_round=rounds.append, **LONG)
    assert len(rounds) == 6, "a finished run is read, without rounds"


@pytest.mark.parametrize("algo", ["fedavg", "fedavg-ft", "ditto", "fedem", "pfedfda", "ppfe"])
def test_a_run_that_is_stopped_is_the_run_that_ends_there(algo, tmp_path):
    stopped = run(algo, results_dir=tmp_path / "a", on_round=lambda line: line["round"] == 3, **LONG)
    planned = run(algo, results_dir=tmp_path / "b", stop_after=3, **LONG)
    assert stopped.config.stop_after == stopped.summary["rounds"] == 3
    assert stopped.folder.name == planned.folder.name
    assert without_times(stopped.summary) == without_times(planned.summary)
    assert list(map(without_times, stopped.rounds)) == list(map(without_times, planned.rounds))
    assert stopped.accuracies.tolist() == planned.accuracies.tolist()
    assert "accuracy" in stopped.rounds[-1], "it is evaluated, though the third round would not be"
    left = [path for path in (tmp_path / "a").glob("*-*") if path.is_dir() and not path.name.startswith(".")]
    assert left == [stopped.folder], "nothing is left of the whole run"
    assert "stop after 3" in load_records(stopped)["setting"][0]
    again = run(**stopped.config, results_dir=tmp_path / "a", progress=False)
    assert again.digest == stopped.digest
    whole = run(algo, results_dir=tmp_path / "a", **LONG)
    assert whole.summary["rounds"] == 6
    assert read_record(stopped.folder).digest == stopped.digest, "both are there"


def test_a_stopped_run_is_no_whole_one_and_takes_no_place_of_it(tmp_path):
    whole = [run("fedavg", results_dir=tmp_path, **LONG), run("local", results_dir=tmp_path, **LONG)]
    stopped = run("local", results_dir=tmp_path, again=True, on_round=lambda line: line["round"] == 2, **LONG)
    assert read_record(whole[1].folder).digest == whole[1].digest
    assert not [*tmp_path.glob("*.old")]
    titles = compare_records(whole[0], stopped)["title"].tolist()
    assert sorted(titles) == ["fedavg", "local, stop after 2"]
    assert not blocks_of([whole[0], stopped]).blocks
    assert len(blocks_of(whole).blocks) == 1
    found = dataclasses.replace(whole[0], config=dataclasses.replace(whole[0].config, tuning_trials=5))
    assert blocks_of([*whole, found]).blocks[0].records["fedavg"] is whole[0], (
        "a search has found the same run"
    )
    assert len(blocks_of([found, whole[1]]).blocks) == 1, "a tuned method is compared in the same setting"
    assert command(whole[0].config)
    assert command(stopped.config) == ""


def test_an_exit_of_a_callback_is_meant(tmp_path):
    with pytest.raises(SystemExit, match="3"):
        run("fedavg", results_dir=tmp_path, on_round=lambda line: sys.exit(3), **TINY)


def test_an_exit_of_a_scripts_own_handler_is_meant(tmp_path, monkeypatch):
    def told_to_end(self, round):
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(ALGORITHMS["fedavg"], "phases", told_to_end)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with pytest.raises(SystemExit, match="143"):
            run("fedavg", results_dir=tmp_path, **TINY)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_only_true_ends_a_run(tmp_path):
    for number, answer in enumerate((None, False, 0, "no", 1)):
        record = run(
            "fedavg", results_dir=tmp_path / f"{number}", on_evaluation=lambda _, a=answer: a, **LONG
        )
        assert record.summary["rounds"] == 6


def test_an_error_of_a_callback_leaves_a_run_that_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("pfl_benchmark.experiment.execution.Execution.checkpoint_seconds", 0.0, raising=False)

    def fails(line):
        if line["round"] == 2:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run("fedavg", results_dir=tmp_path, on_round=fails, **LONG)
    seen = []
    record = run("fedavg", results_dir=tmp_path, on_round=lambda line: seen.append(line["round"]), **LONG)
    assert seen == [1, 2, 3, 4, 5, 6], "also rounds that were found finished"
    assert record.config.stop_after == 0


@pytest.mark.parametrize("rounds", [6, 7])
def test_no_round_to_stop_after(rounds, tmp_path):
    with pytest.raises(UserError, match=f"stop_after is {rounds}, and the run has 6 rounds; expected fewer"):
        run("fedavg", results_dir=tmp_path, stop_after=rounds, **LONG)
