"""The guard around trackers: they see what the record gets, and whatever fails in one costs no run."""

import dataclasses
import json
import pickle
import sys

import pytest

from pfl_benchmark.cli import main
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.engine.rounds import Diverged
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.runner import run_cell
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.track.base import setting_of
from pfl_benchmark.track.weights_and_biases import WeightsAndBiases


class Diary:
    """A tracking and its tracker at once: notes its calls, and fails where it is told to."""

    title = place = "Diary"

    def __init__(self, fails: str = ""):
        self.fails, self.calls, self.about = fails, [], None

    def note(self, name, *values):
        self.calls.append((name, *values))
        if name == self.fails:
            raise OSError(28, "No space left on device")

    def begin(self, about, warn):
        self.about = about
        self.note("begin")
        return self

    def round(self, line):
        self.note("round", line)

    def finish(self, summary, accuracies):
        self.note("finish", summary, accuracies)

    def stop(self, code):
        self.note("stop", code)

    def abandon(self):
        self.note("abandon")
        raise RuntimeError("this fails as well")


class Watch:
    """An observer that raises in some round."""

    def __init__(self, error=None, number=0):
        self.error, self.number, self.seen = error, number, []

    def start(self, rounds, done):
        self.seen.append("start")

    def round(self, line):
        self.seen.append(line["round"])
        if self.error is not None and line["round"] == self.number:
            raise self.error


def run(config, root, *trackings, observer=None):
    execution = Execution(
        device="cpu", executor="loop", results_dir=root, checkpoint_seconds=0, trackings=trackings
    )
    return run_cell(resolve(config), execution, observer or Watch())


def read(folder):
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return lines, json.loads((folder / "summary.json").read_text())


def test_a_tracker_is_told_what_the_record_says(tiny, tmp_path):
    diary, watch = Diary(), Watch()
    summary = run(tiny("fedper"), tmp_path, diary, observer=watch)
    folder = diary.about.folder
    lines, stored = read(folder)
    begin, *rounds, finish = diary.calls
    assert begin == ("begin",)
    assert [line for _, line in rounds] == lines
    rows = (folder / "clients.csv").read_text().splitlines()[1:]
    assert finish == ("finish", stored, [float(row.split(",")[3]) for row in rows])
    assert watch.seen == ["start", 1, 2, 3, 4]
    about = json.loads((folder / "config.json").read_text())
    assert (diary.about.config.to_record(), diary.about.split) == (about["config"], about["split"])
    assert diary.about.environment == stored["environment"]
    assert diary.about.name == "fedper-digits-s2-seed0"
    assert "warnings" not in summary
    run(tiny("fedper"), tmp_path, again := Diary())
    assert again.calls == []


@pytest.mark.parametrize("where", ["begin", "round", "finish"])
def test_one_that_fails_is_dropped_with_one_line(where, tiny, tmp_path, capsys):
    bad, good = Diary(where), Diary()
    summary = run(tiny("fedavg"), tmp_path, bad, good)
    (warning,) = summary["warnings"]
    assert capsys.readouterr().err == f"warning: {warning}\n"
    assert "Diary tracking of fedavg-digits-s2-seed0 has stopped" in warning
    assert "No space left on device" in warning
    names = [name for name, *_ in bad.calls]
    assert names.count(where) == 1
    assert names[-1] == ("begin" if where == "begin" else "abandon")
    assert [name for name, *_ in good.calls] == ["begin", *["round"] * 4, "finish"]
    assert (good.about.folder / "done").exists()


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (Diverged("no number"), 1), (RuntimeError("fault"), 1)]
)
def test_a_run_that_ends_early_says_how_and_goes_on_later(error, code, tiny, tmp_path):
    first, second = Diary(), Diary()
    with pytest.raises(type(error)):
        run(tiny("fedavg"), tmp_path, first, observer=Watch(error, 3))
    assert first.calls[-1] == ("stop", code)
    run(tiny("fedavg"), tmp_path, second)
    lines, _ = read(second.about.folder)
    assert [line for name, *(line,) in second.calls[1:-1]] == lines
    assert second.calls[-1][0] == "finish"


def test_a_run_that_is_stopped_is_followed_anew_under_the_name_of_its_record(tiny, tmp_path):
    class Patient(Watch):
        def round(self, line):
            return line["round"] == 3

    diary = Diary()
    run(tiny("fedavg"), tmp_path, diary, observer=Patient())
    folder = diary.about.folder
    lines, stored = read(folder)
    assert diary.about.config.stop_after == 3
    assert folder.name.endswith(diary.about.config.hash)
    names = [name for name, *_ in diary.calls]
    assert names == ["begin", *["round"] * 3, "stop", "begin", *["round"] * 3, "finish"]
    assert [line for _, line in diary.calls[6:9]] == lines
    assert "accuracy" in lines[-1]
    assert diary.calls[-1][1] == stored


def test_an_interrupt_inside_a_tracker_is_one(tiny, tmp_path):
    class Hasty(Diary):
        def round(self, line):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tiny("fedavg"), tmp_path, hasty := Hasty())
    assert hasty.calls[-1] == ("stop", 130)


def test_what_was_asked_for_travels_to_workers():
    execution = Execution(trackings=(WeightsAndBiases("offline", "p", "e", {"0123456789": ("main",)}),))
    assert pickle.loads(pickle.dumps(execution)) == execution


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_named(name):
    config = RunConfig(**SETTINGS[name].values)
    assert setting_of(config) == name
    assert setting_of(dataclasses.replace(config, rounds=3, algo="ppfe", seed=5)) == name
    assert setting_of(dataclasses.replace(config, samples_per_client=7)) == f"{name}, samples per client 7"


def test_protocols_are_settings_of_their_own():
    flips = RunConfig(**SETTINGS["cifar10-s2"].values)
    plain = dataclasses.replace(flips, augment=False).settled()
    assert setting_of(plain) == "cifar10-s2, no augment"
    assert setting_of(dataclasses.replace(flips, crop_padding=4)) == "cifar10-s2, crop padding 4"


def test_datasets_without_a_setting_are_filed_by_what_their_data_are():
    mine = RunConfig(dataset="mine", partition="dirichlet", dirichlet=0.3)
    assert setting_of(mine) == "mine, partition dirichlet, dirichlet 0.3"
    assert setting_of(dataclasses.replace(mine, rounds=3)) == setting_of(mine)


@pytest.mark.parametrize("command", [["run", "--algo", "fedavg", "--dataset", "digits"], ["tables"]])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--wandb ofline", "--wandb is 'ofline'; expected one of: online, offline, disabled (did you mean"),
        ("--wandb-project p", "--wandb-project has a meaning only with --wandb online or offline"),
        ("--wandb-entity e", "--wandb-entity has a meaning only with --wandb online or offline"),
        (
            "--wandb offline",
            "--wandb offline needs the package wandb, which is not installed: pip install wandb",
        ),
    ],
)
def test_bad_input_is_one_line(command, words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main([*command, "--results-dir", str(tmp_path / "results"), *words.split()]) == 2
    answer = capsys.readouterr()
    assert message in answer.err
    assert (answer.out, answer.err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_the_package_is_not_touched_unless_asked_for(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setenv("WANDB_MODE", "online")
    assert "warnings" not in run(tiny("fedavg"), tmp_path)
