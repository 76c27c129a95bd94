"""Weights & Biases, against real offline runs: what lies in their files equals our records."""

import contextlib
import dataclasses
import json
import os
import signal
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
from record_folders import write_records
from wandb_files import offline_runs

from pfl_benchmark.cli import main
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.progress import RunProgress
from pfl_benchmark.present.render import render
from pfl_benchmark.present.tracked import log_tables, tables_of
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.table import plain
from pfl_benchmark.studies import catalogue
from pfl_benchmark.studies.grid import Column, Grid, Profile, Study, Variant
from pfl_benchmark.track import weights_and_biases
from pfl_benchmark.track.base import About, name_of_tables
from pfl_benchmark.track.weights_and_biases import WeightsAndBiases

pytestmark = pytest.mark.skipif(not find_spec("wandb"), reason="Weights & Biases is not installed")

TINY = {
    "clients": 6,
    "samples_per_client": 20,
    "test_samples_per_client": 10,
    "participation": 0.5,
    "rounds": 4,
    "local_epochs": 1,
    "eval_every": 2,
}
FLAGS = [word for name, value in TINY.items() for word in ("--" + name.replace("_", "-"), str(value))]
RUN = ["run", "--algo", "fedavg", "--dataset", "digits", "--device", "cpu", "--executor", "loop", *FLAGS]
PAIR = Study(
    "pair", "Two methods", {"quick": Grid((Variant("FedAvg", "fedavg"),), (Column("D", "digits-s2"),))}
)
AGAIN = dataclasses.replace(PAIR, name="again", tables=("communication",))


def call(root, *words):
    return main([*RUN, "--results-dir", str(root), *words])


def folder_of(root) -> Path:
    (folder,) = [path.parent for path in root.glob("*/config.json")]
    return folder


def stored(folder, name):
    return json.loads((folder / name).read_text())


def lines_of(folder):
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def _forget():
    """End the package's service, and with it what it knows of a key and an address."""
    import wandb

    wandb.teardown()


@pytest.fixture
def forgotten():
    """A service of the test's own."""
    _forget()
    yield
    _forget()


@pytest.fixture(scope="module", autouse=True)
def _own_surroundings(tmp_path_factory):
    """No login, settings or variables but those of a test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        home = tmp_path_factory.mktemp("home")
        patch.setenv("HOME", str(home))
        patch.setenv("NETRC", str(home / "netrc"))
        yield
        _forget()


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """The results folder of a run that was tracked offline."""
    root = tmp_path_factory.mktemp("tracked")
    assert call(root, "--wandb", "offline", "--algo", "ppfe", "--wandb-project", "mine") == 0
    return root


def test_the_history_is_that_of_the_record(tracked):
    (run,) = offline_runs(tracked)
    lines, history = lines_of(folder_of(tracked)), [dict(row) for row in run.history]
    histogram = history[-1].pop("clients/accuracy")
    sent = [line["bytes_up"] + line["bytes_down"] + line["bytes_broadcast"] for line in lines]
    samples = [line["samples"] + line["adaptation_samples"] for line in lines]
    assert [row.pop("cumulative/bytes") for row in history] == list(accumulate(sent))
    assert [row.pop("cumulative/samples") for row in history] == list(accumulate(samples))
    assert history == lines
    rows = (folder_of(tracked) / "clients.csv").read_text().splitlines()[1:]
    counts, edges = np.histogram([float(row.split(",")[3]) for row in rows], bins=20)
    assert (histogram["values"], histogram["bins"]) == (counts.tolist(), pytest.approx(edges))


def test_configuration_and_summary_are_those_of_the_record(tracked):
    (run,) = offline_runs(tracked)
    folder = folder_of(tracked)
    about, summary = stored(folder, "config.json"), stored(folder, "summary.json")
    assert about["config"].items() <= run.config.items()
    assert (run.config["split"], run.config["environment"]) == (about["split"], summary["environment"])
    assert {name: run.summary.get(name) for name in summary} == summary
    assert run.code == 0


def test_the_run_is_filed(tracked):
    (run,) = offline_runs(tracked)
    about = run.about
    assert (about.run_id, about.display_name) == (folder_of(tracked).name[-10:], "ppfe-digits-s2-seed0")
    assert (about.project, about.job_type, list(about.tags)) == ("mine", "ppfe", ["ppfe", "digits"])
    assert (
        about.run_group
        == run.config["setting"]
        == ("digits-s2, clients 6, samples per client 20, test samples per client 10")
    )


def test_a_finished_run_is_not_logged_again(tracked, capsys):
    assert call(tracked, "--wandb", "offline", "--algo", "ppfe") == 0
    assert len(offline_runs(tracked)) == 1
    assert capsys.readouterr().err.endswith("already finished, not run again\n")


def test_an_interrupted_run_goes_on_under_its_identity(tmp_path, monkeypatch, capsys, checkpoint_always):
    def stop_in_round_three(self, line):
        if line["round"] == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunProgress, "round", stop_in_round_three)
        assert call(tmp_path, "--wandb", "offline") == 130
    assert call(tmp_path, "--wandb", "offline") == 0
    first, second = offline_runs(tmp_path)
    assert (first.about.run_id, first.code) == (second.about.run_id, 130)
    assert [row["round"] for row in first.history] == [1, 2]
    assert [row["round"] for row in second.history] == [1, 2, 3, 4]  # whole, whichever is uploaded
    assert (second.code, second.summary["resumed"]) == (0, 1)
    assert "warning" not in capsys.readouterr().err


def test_rounds_that_the_service_has_are_not_sent_again(tracked):
    class Remote:
        """A run of the service that has the first two rounds."""

        step, sent, dir = 3, (), str(tracked)

        def define_metric(self, *_, **__):
            pass

        def log(self, row, step):
            self.sent += ((step, row["cumulative/samples"]),)

    run, lines = Remote(), lines_of(folder_of(tracked))
    follower = weights_and_biases._Run(run)
    for line in lines:
        follower.round(line)
    sums = list(accumulate(line["samples"] + line["adaptation_samples"] for line in lines))
    assert run.sent == ((3, sums[2]), (4, sums[3]))


@pytest.mark.parametrize(
    ("done", "step", "warned"), [(0, 0, 0), (0, 5, 1), (4, 5, 0)], ids=["new", "again", "continued"]
)
def test_rounds_of_an_earlier_time_are_told(done, step, warned, tracked, monkeypatch):
    class Remote:
        def define_metric(self, *_, **__):
            pass

    remote, told = Remote(), []
    remote.step = step
    monkeypatch.setattr(WeightsAndBiases, "_open", lambda *_, **__: remote)
    config = RunConfig(algo="fedavg", dataset="digits")
    WeightsAndBiases("offline").begin(About(config, "FedAvg", tracked / "x", {}, {}, done), told.append)
    assert len(told) == warned
    assert all("4 rounds" in text for text in told)  # the next step is 5


def test_what_the_service_would_refuse_is_refused_before(monkeypatch, tmp_path):
    for project in ("a/b", "x" * 200):
        with pytest.raises(UserError, match="--wandb-project"):
            WeightsAndBiases("offline", project).check()
    (tmp_path / "file").touch()
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"WANDB_DIR=.* cannot be used"):
        WeightsAndBiases("offline").check()


def test_an_address_that_is_none_is_one_line(monkeypatch, forgotten):
    monkeypatch.setenv("WANDB_BASE_URL", "nonsense")
    with pytest.raises(UserError, match="W&B refuses its settings"):
        WeightsAndBiases("online").check()


def test_a_run_that_diverges_is_marked_as_failed(tmp_path, capsys):
    assert call(tmp_path, "--wandb", "offline", "--lr", "1e6") == 2
    (run,) = offline_runs(tmp_path)
    assert (run.code, "accuracy_worst10" in run.summary) == (1, False)
    assert "warning" not in capsys.readouterr().err


# -- failures -----------------------------------------------------------------------------------------


def _raise(self, *_, **__):
    raise ConnectionError("the network has gone")


def _kill_service(monkeypatch):
    """As the kernel does where memory runs out."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # a process that has just ended
            name, fields = (entry / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            if name == "wandb-core" and fields.split()[1] == str(os.getpid()):
                os.kill(int(entry.name), signal.SIGKILL)
                return
    raise AssertionError("there is no such process")


FAILURES = {
    "an exception": lambda patch: patch.setattr("wandb.Run.log", _raise),
    "a dead service": _kill_service,
    "a full disk": lambda patch: patch.setattr(weights_and_biases, "_ROOM", 1 << 60),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_in_the_middle_costs_nothing_but_a_line(failure, tmp_path, monkeypatch, capsys):
    seen = RunProgress.round

    def fail_in_round_three(self, line):
        if line["round"] == 3:
            FAILURES[failure](patch)
        seen(self, line)

    with monkeypatch.context() as patch:
        patch.setattr(RunProgress, "round", fail_in_round_three)
        assert call(tmp_path, "--wandb", "offline") == 0
    answer = capsys.readouterr()
    (warning,) = [line for line in answer.err.splitlines() if line.startswith("warning")]
    assert "W&B tracking of fedavg-digits-s2-seed0 has stopped" in warning
    assert "wandb:" not in answer.err + answer.out
    assert [line["round"] for line in lines_of(folder_of(tmp_path))] == [1, 2, 3, 4]
    assert call(tmp_path, "--wandb", "offline", "--seed", "1") == 0  # the next one is tracked again
    (next_one,) = {path.name[-10:] for path in tmp_path.glob("*-seed1-*")}
    (run,) = offline_runs(tmp_path, next_one)
    assert (run.code, len(run.history)) == (0, 4)
    assert "warning" not in capsys.readouterr().err


def test_a_service_that_cannot_be_reached_leaves_an_offline_run(forgotten, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(weights_and_biases, "_INIT_SECONDS", 0.5)
    monkeypatch.setattr(weights_and_biases, "_unreachable", False)
    assert call(tmp_path, "--wandb", "online") == 0
    assert call(tmp_path, "--wandb", "online", "--seed", "1") == 0
    err = capfd.readouterr().err
    assert err.count("warning: W&B cannot be used online, going on offline") == 1
    assert f"wandb sync {tmp_path}/wandb/offline-run-*" in err
    assert "wandb:" not in err
    assert [len(run.history) for run in offline_runs(tmp_path)] == [4, 4]


@pytest.mark.parametrize("command", ["run", "tables"])
def test_online_without_a_key_is_refused(command, tmp_path, capsys):
    given = RUN if command == "run" else ["tables"]
    assert main([*given, "--results-dir", str(tmp_path / "results"), "--wandb", "online"]) == 2
    answer = capsys.readouterr()
    assert answer.err.startswith("error: --wandb online needs a W&B key and finds none; set WANDB_API_KEY")
    assert (answer.out, answer.err.count("\n")) == ("", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_login_is_a_key(tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password " + "a" * 40)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    WeightsAndBiases("online").check()


# -- studies and tables -------------------------------------------------------------------------------


def test_cells_and_tables_of_a_profile(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(catalogue, "PROFILES", {"quick": Profile("quick", (0,), TINY)})
    studies = {study.name: study for study in (PAIR, AGAIN)}
    monkeypatch.setattr(catalogue, "STUDIES", studies)
    monkeypatch.setattr("pfl_benchmark.present.tracked.STUDIES", studies)
    root, place = tmp_path / "results", tmp_path / "elsewhere"
    monkeypatch.setenv("WANDB_DIR", str(place))
    monkeypatch.setenv("WANDB_PROJECT", "ours")
    words = ["tables", "--results-dir", str(root), "--device", "cpu", "--wandb", "offline", "--only", "again"]
    assert main(words) == 0
    cell, tables = offline_runs(place)
    assert (cell.about.project, cell.config["study"], cell.config["studies"]) == (
        "ours",
        "pair",
        ["pair", "again"],
    )
    assert cell.about.run_group.startswith("pair: digits-s2, clients 6")
    assert list(cell.about.tags) == ["fedavg", "digits", "pair", "again"]
    assert not (root / "wandb").exists()
    assert (tables.about.run_id, tables.about.run_group) == (name_of_tables("quick", root), "tables")
    (row,) = tables.history
    assert set(row) == {"tables/again", "numbers/again"}
    assert main(words) == 0
    assert len(offline_runs(place)) == 2
    assert "warning" not in capfd.readouterr().err


def test_tables_are_those_that_were_rendered(tmp_path):
    profile, studies = catalogue.PROFILES["quick"], [catalogue.STUDIES["methods"]]
    for study in studies:
        write_records(tmp_path, study, profile)
    render(studies, profile, Store.scan(tmp_path))
    assert log_tables([WeightsAndBiases("offline")], "quick", tmp_path) == []
    (run,) = offline_runs(tmp_path)
    (row,) = run.history
    found = tables_of(tmp_path)
    assert {name: len(own) for name, own in found.items()} == {s.name: len(s.tables) for s in studies}
    tables = [table for own in found.values() for table in own]
    assert set(row) == {f"{kind}/{table.name}" for table in tables for kind in ("tables", "numbers")}
    for table in tables:
        printed, plain_numbers = (
            json.loads((run.folder / "files" / row[f"{kind}/{table.name}"]["path"]).read_text())
            for kind in ("tables", "numbers")
        )
        assert printed["columns"] == [head.text for head in table.heads]
        assert printed["data"] == [[plain(cell) for cell in cells] for cells in table.rows]
        names, lines = table.facts()
        assert plain_numbers["columns"] == list(names)
        assert plain_numbers["data"] == [[line.get(name) for name in names] for line in lines]
        assert "**" not in str(printed["data"])
    path = tmp_path / "tables" / f"{tables[0].name}.json"
    path.write_text(path.read_text().replace("FedAvg", "QQGF"))
    assert log_tables([WeightsAndBiases("offline")], "quick", tmp_path) == []
    assert len(offline_runs(tmp_path)) == 2
    monkey = [WeightsAndBiases("offline", project="another")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wandb.Run.log", _raise)
        (warning,) = log_tables(monkey, "quick", tmp_path)
    assert warning == "W&B has not got the tables: the network has gone (ConnectionError)"
