"""`tune`: what is searched, what counts as a trial, and where the number of trials is told."""

import argparse
import dataclasses
import json
import math
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from answers import refused

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.cli import main
from pfl_benchmark.commands import tune as tune_command
from pfl_benchmark.engine.hyper import Between, parse_hyper, spaces
from pfl_benchmark.experiment.tuning import RATE, earlier, search, space_of
from pfl_benchmark.present.tables.captions import caption
from pfl_benchmark.records.store import Store
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.studies.catalogue import PROFILES
from pfl_benchmark.studies.grid import Column, Grid, Study, Variant
from pfl_benchmark.studies.results import collect

SMALL = ["--dataset", "digits", "--clients", "4", "--rounds", "2", "--local-epochs", "1", "--device", "cpu"]


@pytest.fixture
def tune(capsys, tmp_path):
    def go(*words):
        capsys.readouterr()
        try:
            code = main(["tune", *SMALL, "--results-dir", str(tmp_path / "tune"), *words])
        except SystemExit as error:
            code = error.code
        return code, *capsys.readouterr()

    return go


# What methods declare


def test_what_a_method_declares_can_be_searched(algo):
    hyper = ALGORITHMS[algo].Hyper
    for name, space in spaces(hyper).items():
        default = getattr(hyper(), name)
        if isinstance(space, Between):
            assert 0 < space.low < space.high if space.log else space.low < space.high
            assert space.low <= default <= space.high, name
            values = (space.low, space.high)
        else:
            assert default in space, name
            assert len(set(space)) == len(space) > 1
            values = space
        for value in values:
            parse_hyper(hyper, {name: value}, algo)


def test_most_methods_with_hyper_parameters_declare_some():
    silent = [name for name, method in ALGORITHMS.items() if dataclasses.fields(method.Hyper)]
    assert [name for name in silent if not spaces(ALGORITHMS[name].Hyper)] == ["local"]


def test_every_configuration_of_a_search_is_new_and_in_its_space(algo, tiny):
    config = tiny(algo, validation=0.2)
    space = space_of(config, set())
    found = list(search(resolve(config), {}, None, space, 6, lambda one: 0.5))
    assert len({trial.config.hash for trial in found}) == len(found) == 6
    assert dataclasses.replace(found[0].config, hyper={}) == dataclasses.replace(config, hyper={})
    for trial in found:
        values = {RATE: trial.config.lr, **trial.config.hyper}
        for name, part in space.items():
            if isinstance(part, Between):
                assert part.low * 0.99 <= values[name] <= part.high * 1.01
            else:
                assert values[name] in part
        assert trial.config.validation == 0.2


def test_what_is_fixed_is_not_searched(tiny):
    config = tiny("ditto", validation=0.2)
    assert set(space_of(config, {"lam"})) == {RATE}
    fixed = resolve(dataclasses.replace(config, hyper={"lam": "0.3"}))
    found = list(search(fixed, {"lam": "0.3"}, None, space_of(config, {"lam"}), 4, lambda one: 0.5))
    assert {trial.config.hyper["lam"] for trial in found} == {0.3}


def test_a_search_ends_where_there_is_nothing_new(tiny):
    config = tiny("fedper", validation=0.2)
    found = list(search(resolve(config), {}, None, space_of(config, {RATE}), 50, lambda one: 0.5))
    assert 2 <= len(found) <= 3


def test_the_same_accuracies_make_the_same_search_and_more_trials_go_on(tiny):
    config = tiny("moon", validation=0.2)

    def hashes(count):
        score = lambda one: one.config.lr / (1 + one.config.hyper["mu"])  # noqa: E731
        return [
            t.config.hash for t in search(resolve(config), {}, None, space_of(config, set()), count, score)
        ]

    assert hashes(12)[:8] == hashes(8)


def test_it_finds_what_is_better(tiny):
    """Of two searches that begin alike, each ends near what it is told to be good."""
    config = tiny("ditto", validation=0.2)
    space = space_of(config, {RATE})

    def tried(good):
        score = lambda one: 1 / (1 + abs(math.log10(one.config.hyper["lam"] / good)))  # noqa: E731
        found = search(resolve(config), {}, None, space, 30, score)
        return np.log10([trial.config.hyper["lam"] for trial in found])

    small, large = tried(0.05), tried(5.0)
    assert small[0] == large[0]
    assert abs(small[-10:] - math.log10(0.05)).mean() < 0.7 * abs(small[:10] - math.log10(0.05)).mean()
    assert small[-10:].mean() + 0.5 < large[-10:].mean()


# The command


def test_trials_are_ordinary_records_and_are_not_repeated(tune, tmp_path, trained_rounds):
    code, out, err = tune("--algo", "fedprox", "--trials", "3", "--executor", "loop")
    assert code == 0
    records = Store.scan(tmp_path / "tune").records()
    assert {record.config.validation for record in records} == {0.2}
    assert len(records) + err.count("diverged") == 3
    best = max(records, key=lambda record: record.summary["accuracy"])
    command = out.splitlines()[-1].strip()
    assert "--validation" not in command
    assert "--tuning-trials 3" in command
    assert f"--lr {best.config.lr}" in command or best.config.lr == 0.03
    trained_rounds.clear()
    assert tune("--algo", "fedprox", "--trials", "3", "--executor", "loop")[:2] == (0, out)
    assert trained_rounds == []
    code, out, _ = tune("--algo", "fedprox", "--trials", "4", "--json")
    told = json.loads(out)
    assert told["trials"] == 4
    assert told["ranked"][0]["accuracy"] >= best.summary["accuracy"]
    assert set(trained_rounds) <= {1, 2}


def test_the_command_at_the_end_runs_and_tells_the_trials(tune, tmp_path, capsys):
    *_, command = tune("--algo", "fedavg", "--trials", "2")[1].splitlines()
    words = shlex.split(command)[3:]
    assert main([*words, "--results-dir", str(tmp_path / "runs")]) == 0
    (record,) = Store.scan(tmp_path / "runs").records()
    assert (record.config.tuning_trials, record.config.validation) == (2, 0.0)
    capsys.readouterr()
    assert main(["board", str(tmp_path / "runs"), "--out", str(tmp_path / "board.html")]) == 0
    assert "tuning trials 2" in (tmp_path / "board.html").read_text()


def test_where_trials_lie_and_how_many_there_are_if_nothing_is_said():
    parser = argparse.ArgumentParser()
    tune_command.add_arguments(parser)
    chosen = parser.parse_args([])
    assert (chosen.trials, chosen.results_dir) == (20, Path("results/tune"))


def test_trials_that_diverge_count_and_are_not_repeated(tune, tmp_path, trained_rounds):
    words = ("--algo", "fedprox", "--trials", "2", "--executor", "loop", "--lr", "1e20")
    refused(_only_error(tune(*words)), "all 2 trials diverged")
    trained_rounds.clear()
    refused(_only_error(tune(*words)), "all 2 trials diverged")
    assert trained_rounds == []


def test_trials_of_other_code_are_told(tune, monkeypatch):
    words = ("--algo", "fedprox", "--trials", "1", "--executor", "loop")
    assert "other code" not in tune(*words)[2]
    assert "other code" not in tune(*words)[2]
    monkeypatch.setattr("pfl_benchmark.experiment.tuning.outdated", lambda config, summary: True)
    assert "note: 1 of 1 earlier trials were computed by other code" in tune(*words)[2]


def _only_error(answer):
    code, out, err = answer
    return code, out, err.splitlines()[-1] + "\n"


def test_other_runs_of_the_folder_are_no_trials(tiny, launch, tmp_path):
    config = tiny("fedprox", validation=0.2)
    launch(config, tmp_path)
    launch(tiny("fedprox"), tmp_path)
    launch(tiny("fedavg", validation=0.2), tmp_path)
    launch(tiny("fedprox", {"mu": 0.3}, validation=0.2, lr=0.01), tmp_path)
    assert len(earlier(tmp_path, config, ("lr", "mu"))) == 2
    assert [*earlier(tmp_path, config, ("mu",))] == [config.hash], "another rate is another search"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--trials", "2"), ("--algo is required",)),
        (("--algo", "fedavg", "--trials", "0"), ("--trials is '0'",)),
        (("--algo", "fedavg", "--validation", "0"), ("--validation is 0",)),
        (("--algo", "fedavg", "--validation", "2"), ("--validation is 2",)),
        (("--algo", "fedavg", "--lr", "0.1"), ("nothing left to tune", "lr")),
        (("--algo", "ditto", "--lr", "0.1", "--set", "lam=1"), ("nothing left to tune",)),
        (("--algo", "ditto", "--set", "mu=1"), ("unknown hyper-parameter 'mu'",)),
        (("--algo", "fedavg", "--tuning-trials", "3"), ("unknown flag",)),
    ],
)
def test_bad_input(words, parts, tune, tmp_path):
    refused(tune(*words), *parts)
    assert not list(tmp_path.glob("tune/*-*"))


def test_without_optuna_nothing_is_begun(tune, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    refused(tune("--algo", "fedavg", "--trials", "2"), "tune needs the package optuna", "pip install optuna")
    assert not (tmp_path / "tune").exists()


# Where it is told


def test_captions_tell_the_trials_of_tuned_rows(tmp_path):
    rows = (Variant("FedAvg", "fedavg"), Variant("Ditto, tuned", "ditto", changes={"tuning_trials": 12}))
    study = Study("own", "Own", {"quick": Grid(rows, (Column("Digits", "digits-s2"),))})
    results = collect(study, PROFILES["quick"], Store.scan(tmp_path), None)
    assert "Tuned on a validation split: Ditto, tuned (12 trials)." in caption(results)
    plain = dataclasses.replace(study, grids={"quick": Grid(rows[:1], (Column("Digits", "digits-s2"),))})
    assert "Tuned" not in caption(collect(plain, PROFILES["quick"], Store.scan(tmp_path), None))


def test_the_number_of_trials_changes_nothing_but_the_identity(tiny, launch, tmp_path):
    plain = launch(tiny("fedavg"), tmp_path / "plain").content()
    told = launch(tiny("fedavg", tuning_trials=5), tmp_path / "told").content()
    assert told == plain
    assert tiny("fedavg", tuning_trials=5).hash != tiny("fedavg").hash
