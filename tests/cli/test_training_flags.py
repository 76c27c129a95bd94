"""Options of local training and names of methods as people give them: flags, Python, grids, tune."""

import json
import re

import pytest

import pfl_benchmark
from pfl_benchmark.algorithms import ALGORITHMS, find
from pfl_benchmark.config.fields import as_words
from pfl_benchmark.config.flags import config_from
from pfl_benchmark.config.lr_schedule import FORMS, lr_schedule
from pfl_benchmark.config.run_config import TRAINING, RunConfig
from pfl_benchmark.config.settings import SETTINGS, Setting
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.registry import register
from pfl_benchmark.present.page.command import command as command_of

SPLIT = {"dataset": "digits", "clients": 6, "samples_per_client": 20, "test_samples_per_client": 10}
SMALL = {**SPLIT, "rounds": 2, "participation": 0.5, "eval_every": 0}
WHERE = {"device": "cpu", "executor": "loop"}
GIVEN = {
    "optimizer": "adamw",
    "lr": 0.002,
    "lr_schedule": "step:1:0.5",
    "clip_norm": 2.0,
    "local_steps": 4,
    "label_smoothing": 0.1,
}


def words(values):
    return [word for name, value in values.items() for word in as_words(name, value)]


def test_flags_python_and_the_printed_command_mean_the_same_run(command, tmp_path):
    typed = command(["--algo", "fedper"], words({**SMALL, **GIVEN}), ["--results-dir", str(tmp_path)],
                    "--device cpu --executor loop")  # fmt: skip
    assert typed.code == 0, typed.err
    record = pfl_benchmark.run("FedPer", results_dir=tmp_path, progress=False, **SMALL, **GIVEN, **WHERE)
    assert [path.name for path in tmp_path.glob("fedper-*")] == [record.folder.name]  # nothing is run again
    stored = json.loads((record.folder / "config.json").read_text())["config"]
    assert {name: stored[name] for name in GIVEN} == GIVEN
    assert record.summary["steps"] == (3 + 6) * 4
    again = command_of(record.config).split()
    assert {*words(GIVEN)} <= {*again}
    assert "--local-epochs" not in again


def test_a_grid_varies_them_and_leaves_out_what_a_method_refuses(command, tmp_path):
    done = command("grid --algo fedavg pfedme --setting digits-s2 --vary optimizer=sgd,adam", words(
        {name: value for name, value in SMALL.items() if name != "dataset"}),
        "--lr-schedule cosine --local-steps 2 --device cpu --executor loop",
        ["--results-dir", str(tmp_path)])  # fmt: skip
    assert done.code == 0, done.err
    assert "optimizer adam" in done.out
    assert len([*tmp_path.glob("fedavg-*")]) == 2
    assert len([*tmp_path.glob("pfedme-*")]) == 1
    assert "optimizer adam" in (tmp_path / "tables" / "grid.csv").read_text()


def test_tune_takes_them(command, tmp_path):
    pytest.importorskip("optuna")
    done = command("tune --trials 1 --json --algo fedprox", words({**SMALL, **GIVEN}),
                   ["--results-dir", str(tmp_path)], "--device cpu --executor loop")  # fmt: skip
    assert done.code == 0, done.err
    assert " ".join(words({"clip_norm": 2.0, "local_steps": 4})) in done.json["command"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--local-steps 5 --local-epochs 2", "--local-steps and --local-epochs .*give one of them"),
        ("--optimizer adam --momentum 0.9", "--momentum 0.9 has no effect under --optimizer adam; drop it"),
        ("--optimizer adam --nesterov", "--nesterov is for --optimizer sgd"),
        ("--nesterov --momentum 0", "--nesterov needs momentum, .*--momentum 0.9"),
        ("--optimizer adm", r"--optimizer is 'adm'.*did you mean 'adam'"),
        ("--optim adam", "did you mean '--optimizer'"),
        ("--scheduler cosine", "did you mean '--lr-schedule'"),
        ("--max-norm 5", "did you mean '--clip-norm'"),
        ("--clip-norm -1", "--clip-norm is -1; expected a number of at least 0"),
        ("--local-steps -3", "--local-steps is -3; expected"),
        ("--local-steps 2.5", "--local-steps is '2.5'; expected a whole number"),
        ("--label-smoothing 1", r"--label-smoothing is 1; expected a number in \[0, 1\)"),
        ("--lr-schedule exponentail:0.9", "--lr-schedule is 'exponentail:0.9'.*did you mean 'exponential'"),
        ("--lr-schedule exponential", "expected of the form exponential:0.99"),
        ("--lr-schedule exponential:1.5", "'1.5' is no factor"),
        ("--lr-schedule exponential:nan", "'nan' is no factor"),
        ("--lr-schedule step:0.1", "expected of the form step:30:0.1"),
        ("--lr-schedule step:0:0.1", "'0' is no number of rounds"),
        ("--lr-schedule step:ten:0.1", "'ten' is no number of rounds"),
        ("--lr-schedule cosine:0", "expected of the form cosine"),
        ("--device mps", "--device mps: PyTorch finds no Apple GPU here"),
        ("--device metal", "did you mean 'mps'"),
        ("--device mps:1", "one device; use --device mps"),
    ],
)
def test_what_does_not_go_is_one_line(given, says, command, tmp_path):
    done = command("--algo fedavg --dataset digits", given, ["--results-dir", str(tmp_path)])
    assert done.code == 2
    assert re.search(says, done.err), done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("form", [*FORMS, "Cosine", "step: 5 :0.50", "exponential:.9"])
def test_a_schedule_has_one_spelling_on_record(form):
    _, config = config_from({"dataset": "digits", "lr_schedule": form})
    text = config.lr_schedule
    assert lr_schedule(text).text == text
    assert [lr_schedule(text).factor(r, 9) for r in range(1, 10)] == [
        lr_schedule(form).factor(r, 9) for r in range(1, 10)
    ]
    assert config.hash == config_from({"dataset": "digits", "lr_schedule": text.upper()})[1].hash


def test_a_setting_with_steps_gives_way_to_epochs(monkeypatch):
    monkeypatch.setitem(
        SETTINGS, "stepped", Setting("Stepped", {**SETTINGS["digits-s2"].values, "local_steps": 9})
    )
    _, own = config_from({}, "stepped")
    _, other = config_from({"local_epochs": 2}, "stepped")
    assert (own.local_steps, own.local_epochs) == (9, RunConfig.local_epochs)
    assert (other.local_steps, other.local_epochs) == (0, 2)


# -- names of methods -------------------------------------------------------------------------------------

SPELLINGS = {
    "phn": ["pfedhn", "pFedHN", "PHN", "p-fed_hn"],
    "per-fedavg": ["PerFedAvg", "per_fedavg", "Per FedAvg"],
    "fedavg-ft": ["FedAvg+FT", "fedavgft"],
    "local": ["Local Only", "local-only", "standalone"],
    "feddbe": ["DBE"],
    "knn-per": ["kNN-Per", "knnper"],
}


@pytest.mark.parametrize(("name", "spelling"), [(n, s) for n, own in SPELLINGS.items() for s in own])
def test_methods_answer_to_other_names(name, spelling):
    assert find(spelling) is ALGORITHMS[name]


def test_every_method_answers_to_what_it_declares_and_to_no_other(algo):
    method = ALGORITHMS[algo]
    for name in (method.name, method.title, *method.aliases):
        for spelling in (name, name.upper(), name.replace("-", "_"), name.replace("-", "")):
            assert find(spelling) is method


OTHERWISE = ["--algo pFedHN", "check --algo pFedHN --only text", "tune --trials 1 --algo phN"]


@pytest.mark.parametrize("typed", OTHERWISE)
def test_commands_take_other_names_and_record_the_registrys(typed, command, tmp_path):
    if typed.startswith("tune"):
        pytest.importorskip("optuna")
    checks = typed.startswith("check")
    flags = [*words({**SMALL, "local_steps": 1}), "--device", "cpu", "--results-dir", str(tmp_path)]
    done = command(typed, [] if checks else flags)
    assert done.code == 0, done.err
    assert checks or [*tmp_path.glob("phn-*")]


def test_a_name_comes_before_what_others_are_also_called(monkeypatch):
    monkeypatch.setattr("pfl_benchmark.engine.registry.ALGORITHMS", {**ALGORITHMS})

    class Other(Algorithm):
        name, title, reference = "pfedhn", "Another", "none"

    register(Other)
    assert find("pfedhn") is find("P-FedHN") is Other
    assert find("phn") is ALGORITHMS["phn"]


@pytest.mark.parametrize(
    ("attribute", "value"), [("refuses", {"optimiser": "x"}), ("aliases", "one"), ("aliases", (1,))]
)
def test_what_a_method_declares_is_checked(attribute, value, monkeypatch):
    monkeypatch.setattr("pfl_benchmark.engine.registry.ALGORITHMS", {})
    cls = type("Odd", (Algorithm,), {"name": "odd", "title": "Odd", "reference": "none", attribute: value})
    with pytest.raises(ValueError, match="expected"):
        register(cls)


def test_the_card_tells_what_a_method_refuses_and_its_names(command):
    assert (
        "`--optimizer`, `--clip-norm`: not for 'scaffold'" in command("list methods scaffold --markdown").out
    )
    assert "`pfedhn`" in command("list methods pFedHN --markdown").out


def test_help_tells_the_options(command):
    text = command("run --help").out
    assert all(f"--{name.replace('_', '-')}" in text for name in TRAINING)
