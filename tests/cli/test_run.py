"""``run``: what it prints, the record it leaves, and how it goes on after an interruption."""

import json
from pathlib import Path

import pytest

from pfl_benchmark.experiment.progress import RunProgress

KEYS = {
    "accuracy",
    "accuracy_unweighted",
    "accuracy_worst10",
    "accuracy_std",
    "bytes_up",
    "bytes_down",
    "samples",
    "samples_per_second",
    "seconds",
    "record",
}
TIMED = ("samples_per_second", "seconds", "record", "resumed")


def test_table_and_lines(tiny_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = tiny_run("--algo fedper --lr 0.05 --augment")
    assert answer.code == 0
    headline, *lines = answer.err.splitlines()
    for part in (
        "fedper on digits-s2",
        "6 clients",
        "2 classes",
        "--lr 0.05, --augment, ",
        "seed 0",
        "cpu",
        "executor loop",
    ):
        assert part in headline
    assert [line.split("  ")[0] for line in lines] == ["round 2/4", "round 4/4"]
    table = dict(
        line[:14].strip() and (line[:14].strip(), line[14:].strip()) for line in answer.out.splitlines()
    )
    assert list(table) == [
        "accuracy", "unweighted", "worst 10 %", "spread", "macro-F1", "AUC", "bytes up", "bytes down",
        "broadcast", "samples/s", "time", "record",
    ]  # fmt: skip
    record = Path(table["record"])
    assert not record.is_absolute()
    assert table["record"] in headline
    summary = json.loads((record / "summary.json").read_text())
    assert table["accuracy"].startswith(f"{100 * summary['accuracy']:.2f} %")
    assert "personal model" in table["accuracy"]


def test_json_and_finished_run(tiny_run):
    first = tiny_run("--algo fedavg --json")
    assert first.code == 0
    assert first.out.count("\n") == 1
    assert set(first.json) >= KEYS
    assert first.json["evaluated"] == "global"
    record = Path(first.json["record"])
    before = (record / "rounds.jsonl").stat().st_mtime_ns
    again = tiny_run("--algo fedavg --json")
    assert again.code == 0
    assert again.json == first.json
    assert "already finished" in again.err
    assert again.err.count("\n") == 1
    assert (record / "rounds.jsonl").stat().st_mtime_ns == before
    table = tiny_run("--algo fedavg").out
    assert f"{100 * first.json['accuracy']:.2f} %" in table
    assert "global model" in table


def test_a_finished_run_of_other_code_is_not_passed_off_as_new(tiny_run, monkeypatch):
    """Whoever has just edited a method must not take the old figure for that of the edit."""
    tiny_run("--algo fedavg")
    monkeypatch.setattr("pfl_benchmark.resolve.code.code_of", lambda config: "after the edit")
    again = tiny_run("--algo fedavg")
    first, second = again.err.splitlines()
    assert "already finished" in first
    assert second.startswith("note: that record was computed by other code")
    assert "remove its folder" in second


@pytest.mark.parametrize(
    ("words", "bound"),
    [
        ("--algo fedavg --budget bytes", "as many as the bytes allow"),
        ("--algo fedper --budget bytes --byte-budget 99000000", "as many as local computation"),
        ("--algo ditto --budget samples", "as many as the samples allow"),
    ],
)
def test_the_table_says_what_set_the_rounds(words, bound, tiny_run):
    line = next(line for line in tiny_run(words).out.splitlines() if line.startswith("rounds"))
    assert bound in line
    assert " of " in line
    assert not any(line.startswith("rounds") for line in tiny_run("--algo fedavg").out.splitlines())


def test_the_table_says_what_was_tested_on(tiny_run):
    assert "all test samples" in tiny_run("--algo fedavg").out
    assert "training samples that were held out" in tiny_run("--algo fedavg --validation 0.25").out


@pytest.mark.parametrize(
    ("words", "hyper"),
    [
        ("--algo ditto --set lam=0.5 --set personal-epochs=2", {"lam": 0.5, "personal_epochs": 2}),
        ("--algo fedrep --set lr=1 --lr 0.1", None),
    ],
)
def test_set_reaches_the_method(words, hyper, tiny_run):
    answer = tiny_run(words, "--json")
    if hyper is None:
        assert answer.code == 2
        assert "lr is no hyper-parameter of 'fedrep'; use --lr 1" in answer.err
        return
    config = json.loads((Path(answer.json["record"]) / "config.json").read_text())["config"]
    assert hyper.items() <= config["hyper"].items()


def test_interrupted_run_goes_on(tiny_run, tmp_path, monkeypatch, checkpoint_always):
    whole = tiny_run("--algo fedrep --json").json
    elsewhere = ["--results-dir", str(tmp_path / "other")]
    with monkeypatch.context() as patch:
        patch.setattr(RunProgress, "round", _interrupt_in_round_three)
        answer = tiny_run("--algo fedrep --json", elsewhere)
    assert answer.code == 130
    assert answer.out == ""
    assert answer.err.splitlines()[-1] == "interrupted; to continue, give the same command again"
    assert "Traceback" not in answer.err
    resumed = tiny_run("--algo fedrep --json", elsewhere)
    assert "resumes after round 3" in resumed.err
    assert [line.split("  ")[0] for line in resumed.err.splitlines()[1:]] == ["round 4/4"]
    assert {**resumed.json, **dict.fromkeys(TIMED)} == {**whole, **dict.fromkeys(TIMED)}


def test_a_run_says_what_other_code_or_machines_did_of_it(tiny_run, monkeypatch, checkpoint_always):
    with monkeypatch.context() as patch:
        patch.setattr(RunProgress, "round", _interrupt_in_round_three)
        tiny_run("--algo fedrep --executor loop")
    resumed = tiny_run("--algo fedrep --executor threads")
    (line,) = [line for line in resumed.out.splitlines() if line.startswith("origin")]
    assert "rounds 1-3 were computed with executor loop" in line


def _interrupt_in_round_three(self, line):
    if line["round"] == 3:
        raise KeyboardInterrupt


def test_shared_beginning_is_said(tiny_run):
    tiny_run("--algo fedavg")
    answer = tiny_run("--algo fedavg-ft")
    assert answer.code == 0
    assert "taken over from a run that shares them" in answer.err
    assert [line.split("  ")[0] for line in answer.err.splitlines()[1:]] == ["round 4/4"]
