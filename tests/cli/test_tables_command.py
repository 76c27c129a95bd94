"""The command `tables`, from bad input to a whole study on two real runs."""

import dataclasses
import glob
import json
import os
import re
import shutil

import pytest
from own_studies import FEW
from record_folders import write_records

from pfl_benchmark.cli import main
from pfl_benchmark.engine.executors.threads import available_cores
from pfl_benchmark.experiment import estimate
from pfl_benchmark.render.formats import FORMATS
from pfl_benchmark.studies import catalogue
from pfl_benchmark.studies.grid import Column, Grid, Profile, Study, Variant

TINY = Profile(
    "quick",
    seeds=(0,),
    changes={
        "clients": 6,
        "participation": 0.5,
        "samples_per_client": 20,
        "test_samples_per_client": 10,
        "rounds": 4,
        "local_epochs": 1,
        "eval_every": 2,
    },
)
DIGITS = Column("Digits", "digits-s2")
PAIR = Study(
    "pair",
    "Two methods",
    {"quick": Grid((Variant("FedAvg", "fedavg"), Variant("FedAvg+FT", "fedavg-ft")), (DIGITS,))},
    figures=("learning-curves",),
)
AGAIN = dataclasses.replace(PAIR, name="again", tables=("communication",), figures=())
WILD = Study(
    "wild",
    "One that diverges, one that does not",
    {
        "quick": Grid(
            (Variant("FedPer", "fedper"),),
            (Column("wild", "digits-s2", {"lr": 1e6}), Column("tame", "digits-s2")),
        )
    },
)


TABLES = ("pair", "pair-significance", "again")


class Answer:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def command(capsys, tmp_path):
    """``command("--dry-run")`` with records below `tmp_path`; SystemExit counts as its code."""

    def go(*words, folder=tmp_path / "results"):
        capsys.readouterr()
        try:
            words = [part for word in words for part in word.split()]
            code = main(["tables", "--results-dir", str(folder), "--device", "cpu", *words])
        except SystemExit as stop:
            code = stop.code
        return Answer(code, *capsys.readouterr())

    return go


@pytest.fixture
def tiny_studies(monkeypatch):
    """A catalogue of two studies that share two runs of a second, and one that fails."""
    monkeypatch.setattr(catalogue, "STUDIES", {study.name: study for study in (PAIR, AGAIN, WILD)})
    monkeypatch.setattr(catalogue, "PROFILES", {"quick": TINY, "paper": catalogue.PROFILES["paper"]})


def contents(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_fill_render_and_nothing_to_do(command, tiny_studies, tmp_path):
    first = command("--only pair again")
    assert first.code == 0
    assert "2 of 2 runs to do" in first.err
    assert re.search(r"\[2/2\] fedavg-ft on digits-s2, seed 0: accuracy \d+\.\d\d %", first.err)
    assert "all 2 runs done; rendered pair, again" in first.out
    root = tmp_path / "results"
    names = {path.name for path in (*root.glob("tables/*"), *root.glob("figures/*"))}
    tables = [f"{name}.{ending}" for name in TABLES for ending in FORMATS]
    assert names == {*tables, "pair-learning-curves.svg", "pair-learning-curves.png"}
    summaries = [json.loads(path.read_text()) for path in root.glob("fedavg*/summary.json")]
    text = (root / "tables" / "pair.md").read_text()
    assert all(f"{100 * summary['accuracy']:.2f}" in text for summary in summaries)
    before = contents(root)
    second = command("--only pair again")
    assert (second.code, second.err) == (0, "")
    assert "tables and figures are up to date" in second.out
    assert contents(root) == before
    damaged = next(root.glob("fedavg-ft-*"))
    (damaged / "clients.csv").write_text("nothing")
    third = command("--only pair again")
    assert third.code == 0
    assert f"set aside as {damaged.name}.damaged: clients.csv" in third.err
    assert "1 of 2 runs to do" in third.err
    assert (damaged / "done").exists()


def test_records_of_other_code_are_counted(command, tiny_studies, tmp_path, monkeypatch):
    assert "other code" not in command("--only pair").out
    monkeypatch.setattr("pfl_benchmark.resolve.code.code_of", lambda config: "after the edit")
    answer = command("--only pair")
    assert answer.code == 0
    assert "2 of 2 records were computed by other code" in answer.out
    named = next(line for line in answer.out.splitlines() if "remove their folders" in line).split()[-1]
    assert (tmp_path / "results" / named / "done").exists()


def test_a_diverged_cell_is_named_and_the_others_are_made(command, tiny_studies, tmp_path):
    answer = command("--only wild")
    assert answer.code == 0
    assert "no result: fedper on digits-s2, lr 1000000.0, seed 0: training diverged" in answer.err
    assert "1 of 2 runs diverged" in answer.out
    text = (tmp_path / "results" / "tables" / "wild.md").read_text()
    assert re.search(r"\| FedPer +\| +– \| +\*\*\d", text)
    assert "no record of FedPer on wild: training diverged" in text


def test_a_diverged_cell_is_not_run_again_until_its_folder_is_removed(command, tiny_studies):
    """Its training would diverge again."""
    command("--only wild")
    plan = command("--only wild --dry-run")
    (line,) = (line for line in plan.out.splitlines() if "diverged before, not run again" in line)
    assert line.startswith("fedper on")
    assert "lr 1000000.0" in line
    assert "1 of    2 done, 1 diverged, about" in plan.out
    assert "2 runs, 1 done, 1 diverged, 0 missing" in plan.out
    again = command("--only wild")
    assert again.code == 0
    assert "to run" not in again.err
    (line,) = (line for line in again.err.splitlines() if line.startswith("not run again: fedper on"))
    assert "training diverged" in line
    assert "1 of 2 runs diverged" in again.out
    (folder,) = glob.glob(line.rpartition("remove ")[2])
    shutil.rmtree(folder)
    anew = command("--only wild")
    assert anew.code == 0
    assert "1 of 2 runs to do" in anew.err


def test_an_interrupted_call_goes_on(command, tiny_studies, monkeypatch, tmp_path):
    from pfl_benchmark.launch import base

    done, run = [], base.run_judged

    def interrupted(config, execution, observer):
        if done:
            raise KeyboardInterrupt
        done.append(config)
        return run(config, execution, observer)

    with monkeypatch.context() as patch:
        patch.setattr(base, "run_judged", interrupted)
        assert command("--only pair").code == 130
    answer = command("--only pair")
    assert (answer.code, "1 of 2 runs to do" in answer.err) == (0, True)


def test_a_cell_that_fails_by_a_fault_of_the_program_is_a_failure_of_the_command(
    command, tiny_studies, monkeypatch
):
    from pfl_benchmark.launch import base

    monkeypatch.setattr(base, "run_judged", lambda config, execution, observer: 1 / 0)
    answer = command("--only pair")
    assert answer.code == 1
    assert answer.err.count("ZeroDivisionError") >= 2
    assert "2 runs" in answer.out


def test_a_dry_run_changes_nothing(command, tiny_studies, tmp_path):
    answer = command("--dry-run")
    assert answer.code == 0
    assert not (tmp_path / "results").exists()
    assert re.search(r"fedavg on digits-s2, seed 0 +missing, about .* \[pair, again\]", answer.out)
    assert "4 runs, 0 done, 4 missing" in answer.out
    assert "measurement" in answer.out


def test_only_some_settings_are_run(command, own_catalogue):
    answer = command("--dry-run --only main few --settings digits-dir0.3")
    assert answer.code == 0
    assert "fedavg on digits-dir0.3, seed 0" in answer.out
    assert "digits-s2" not in answer.out


def test_refused_flags_leave_the_folder_as_it_was(command, tmp_path):
    (tmp_path / "results").mkdir()
    assert command("--settings cifar10-s2 --render-only").code == 2
    assert contents(tmp_path / "results") == {}


@pytest.mark.skipif(available_cores() < 2, reason="two jobs need two cores")
def test_a_dry_run_tells_how_long_several_jobs_would_take(command, tiny_studies, monkeypatch):
    monkeypatch.setattr(estimate.Estimator, "in_turn", lambda self, configs: [60.0 for _ in configs])
    assert "4 missing: about 4:00 on this machine" in command("--dry-run").out
    assert "4 missing: about 2:00 on this machine, 2 at a time" in command("--dry-run --jobs 2").out


def test_a_dry_run_tells_what_is_done(command, own_catalogue, tmp_path):
    write_records(tmp_path / "results", FEW, catalogue.PROFILES["quick"])
    answer = command("--dry-run --only few pair")
    assert re.search(r"^fedavg on digits-s2, seed 0 +done", answer.out, re.M)
    assert re.search(r"^few +4 of +4 done", answer.out, re.M)
    assert re.search(r"^pair +2 of +4 done", answer.out, re.M)


def test_the_plan_names_absent_data(command, monkeypatch, tmp_path):
    letters = Grid((Variant("FedAvg", "fedavg"),), (Column("C", "cifar10-s2"), Column("E", "emnist-s10")))
    monkeypatch.setitem(catalogue.STUDIES, "letters", Study("letters", "Letters", {"paper": letters}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    answer = command(f"--profile paper --only letters --seeds 1 --dry-run --data-dir {tmp_path}")
    assert answer.code == 0
    assert re.search(r"fedavg on emnist-s10, seed 0 .*emnist is not here yet", answer.out)
    assert "times on cifar10:" in answer.out


def test_seeds_are_made_and_shown(command, own_catalogue, tmp_path):
    write_records(tmp_path / "results", FEW, catalogue.PROFILES["quick"], seeds=(0, 1, 2))
    table = tmp_path / "results" / "tables" / "few.md"
    assert "all 4 runs done" in command("--only few").out
    assert "seeds 0, 1, 2" in table.read_text()
    assert "all 8 runs done" in command("--only few --seeds 2").out
    assert "seeds 0, 1." in table.read_text()


def test_rendering_alone_runs_nothing_and_moves_nothing(command, own_catalogue, tmp_path):
    root = tmp_path / "results"
    folders = write_records(root, FEW, catalogue.PROFILES["quick"])
    (folders[0] / "clients.csv").write_text("nothing")
    answer = command("--only few --render-only")
    assert answer.code == 0
    assert f"damaged record, not used: {folders[0].name}" in answer.err
    assert "1 of 4 runs missing; rendered few" in answer.out
    assert folders[0].exists()
    assert "–" in (root / "tables" / "few.md").read_text()


def test_files_that_a_study_no_longer_makes_are_dropped(command, tiny_studies, monkeypatch, tmp_path):
    command("--only pair")
    fewer = dataclasses.replace(PAIR, tables=("accuracy",))
    monkeypatch.setattr(catalogue, "STUDIES", {"pair": fewer})
    command("--only pair")
    assert sorted(path.name for path in (tmp_path / "results" / "tables").glob("*")) == [
        f"pair.{ending}" for ending in sorted(FORMATS)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--profile quik", "unknown profile 'quik' (did you mean 'quick'?)"),
        ("--only man", "unknown study 'man' (did you mean 'main'?)"),
        ("--settings digits-s3", "unknown setting 'digits-s3' (did you mean 'digits-s2'?)"),
        (
            "--only main --settings digits-s2 cifar10-s2",
            "no run of main is on it; expected some of digits-s2",
        ),
        ("--seeds 0", "--seeds is '0'"),
        ("--seeds many", "--seeds is 'many'"),
        ("--executor treads", "unknown executor 'treads' (did you mean 'threads'?)"),
        ("--dry-run --render-only", "contradict each other"),
        ("--render-only", "there are no records in"),
        ("--jobs 0", "--jobs is '0'"),
        ("--jobs many", "--jobs is 'many'"),
        ("--jobs 9999", "--jobs 9999: every job needs a core"),
        ("--jobs 9999 --dry-run", "or use more machines with --launcher slurm or --launcher ray"),
        ("--launcher rai", "unknown launcher 'rai' (did you mean 'ray'?)"),
        ("--address 10.0.0.1:6379", "add --launcher ray"),
        ("--slurm time=30", "add --launcher slurm"),
        ("--launcher slurm --slurm partition", "--slurm is 'partition'; expected KEY=VALUE"),
        ("--launcher slurm --slurm partition=gpu", "add --slurm time=MINUTES"),
    ],
)
def test_bad_input_is_one_line(command, own_catalogue, words, message, tmp_path):
    answer = command(words)
    assert answer.code == 2
    assert message in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_a_folder_of_another_version_is_refused(command, tmp_path):
    root = tmp_path / "results"
    root.mkdir()
    (root / "store.json").write_text('{"format": 99}')
    for words in ("", "--dry-run", "--render-only"):
        answer = command(words)
        assert answer.code == 2
        assert "format 99" in answer.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(command, own_catalogue, tmp_path):
    root = tmp_path / "results"
    write_records(root, FEW, catalogue.PROFILES["quick"])
    root.chmod(0o555)
    try:
        answer = command("--only few")
    finally:
        root.chmod(0o755)
    assert answer.code == 2
    assert "--results-dir" in answer.err


def test_a_file_is_no_results_folder(command, own_catalogue, tmp_path):
    (tmp_path / "file").write_text("")
    answer = command("--only few", folder=tmp_path / "file" / "below")
    assert answer.code == 2
    assert "choose another --results-dir" in answer.err
