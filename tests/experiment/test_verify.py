"""`verify`: what is found when the rounds of a record are run again, and what its verdict is good for."""

import json
import shutil

import pytest
import torch
from answers import refused
from record_folders import amend, write_record

from pfl_benchmark.cli import main
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.budget import Plan
from pfl_benchmark.engine.executors import EXECUTORS
from pfl_benchmark.engine.executors.threads import available_cores
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment import verify as again
from pfl_benchmark.experiment.verdict import TOLERANCE
from pfl_benchmark.records.seal import seal, write_verdict
from pfl_benchmark.records.store import Store
from pfl_benchmark.resolve.code import code_of, outdated

COUNTS = ("stage", "participants", "bytes_down", "bytes_up", "bytes_broadcast", "samples", "steps")
EVALUATED = ("accuracy", "accuracy_unweighted", "accuracy_worst10", "accuracy_std", "test_loss")


@pytest.fixture
def verify(capsys, monkeypatch, tmp_path):
    """Run the command; returns exit code, output and the error stream. Nothing may be left behind."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))

    def left():
        return [path for path in scratch.iterdir() if not path.name.startswith("torchinductor")]  # PyTorch's

    def go(*words):
        capsys.readouterr()
        code = main(["verify", *map(str, words)])
        assert not left()
        return code, *capsys.readouterr()

    def caught(*words):
        try:
            return go(*words)
        except SystemExit as error:
            assert not left()
            return error.code, *capsys.readouterr()

    return caught


@pytest.fixture
def copy(unbroken, tmp_path):
    """``copy("fedper")``: a copy of the method's finished tiny run (four rounds, by the loop)."""

    def make(algo="fedper"):
        folder = unbroken(algo).folder
        return shutil.copytree(folder, tmp_path / "runs" / folder.name)

    return make


def verdict(folder):
    return json.loads((folder / "verified.json").read_text())


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "verified.json"}


def edit_rounds(folder, number, **changes):
    amend(folder / "rounds.jsonl", lambda lines: lines[number - 1].update(changes))


def value_of(folder, number, field):
    return json.loads((folder / "rounds.jsonl").read_text().splitlines()[number - 1])[field]


# -- equal ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", sorted(EXECUTORS))
@pytest.mark.parametrize("length", [("--rounds", "3"), ("--all",)], ids=["3", "all"])
def test_the_same_code_and_executor_give_the_same_bits(executor, length, tiny, launch, verify, tmp_path):
    folder = launch(tiny("fedper"), tmp_path / "runs", executor=executor).folder
    before = content(folder), sorted((tmp_path / "runs").iterdir())
    code, out, _ = verify(folder, *length)
    assert (code, out.split("  ")[0]) == (0, "bit-equal")
    found = verdict(folder)
    assert (found["verdict"], found["unequal"], found["largest"]) == ("bit-equal", 0, None)
    assert found["rounds"] == (3 if "--rounds" in length else 4)
    assert found["environment"]["executor"] == executor  # the record's own, not the machine's choice
    assert found["code"] == code_of(tiny("fedper"))
    assert (content(folder), sorted((tmp_path / "runs").iterdir())) == before


@pytest.mark.parametrize("executor", sorted(EXECUTORS))
@pytest.mark.parametrize("cores", [1, 1000, None, "one"])
def test_as_many_cores_as_the_record_had_where_they_decide_its_floats(cores, executor, copy, verify):
    folder, before = copy(), available_cores()
    amend(folder / "summary.json", lambda summary: summary["environment"].update(cores=cores))
    verify(folder, "--rounds", 1, "--executor", executor)
    known = cores in (1, 1000) and EXECUTORS[executor].by_cores
    assert verdict(folder)["environment"]["cores"] == (min(cores, before) if known else before)
    assert available_cores() == before


@pytest.mark.parametrize("rounds", ["--rounds=2", "--all"])
@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize(("nudge", "drifts"), [(1e-2, True), (1e-9, False)])
def test_drift_of_other_hardware_is_measured_not_guessed(
    elsewhere, nudge, drifts, rounds, copy, verify, monkeypatch
):
    """A loss beyond tolerance may come of rounding only where a run that begins elsewhere goes as far."""
    folder = copy("fedper")
    if elsewhere:
        amend(folder / "summary.json", lambda summary: summary["environment"].update(processor="another"))
    edit_rounds(folder, 2, loss=value_of(folder, 2, "loss") * (1 + 3 * TOLERANCE))
    (folder / "done").unlink()
    seal(folder)
    monkeypatch.setattr(again, "NUDGE", nudge)
    code, out, _ = verify(folder, rounds)
    expected = "drifted" if elsewhere and drifts else "different"
    assert (verdict(folder)["verdict"], code) == (expected, int(expected == "different"))
    assert out.startswith(expected)
    assert ("drift" in verdict(folder)) == elsewhere
    assert (
        outdated(
            RunConfig.from_dict(json.loads((folder / "config.json").read_text())["config"]),
            json.loads((folder / "summary.json").read_text()),
        )
        is False
    )


def test_counts_never_drift(copy, verify, monkeypatch):
    folder = copy("fedper")
    amend(folder / "summary.json", lambda summary: summary["environment"].update(processor="another"))
    edit_rounds(folder, 1, steps=value_of(folder, 1, "steps") + 1)
    (folder / "done").unlink()
    seal(folder)
    monkeypatch.setattr(again, "NUDGE", 1e-2)
    assert verify(folder, "--rounds=2")[0] == 1
    assert verdict(folder)["verdict"] == "different"


def test_every_method_sees_its_full_number_of_rounds(algo, copy, verify):
    """Stages and closing rounds depend on it, so that a run of three rounds would not do."""
    folder = copy(algo)
    for length, rounds in (("--rounds=3", 3), ("--all", 4)):
        assert verify(folder, length)[0] == 0
        assert (verdict(folder)["verdict"], verdict(folder)["rounds"]) == ("bit-equal", rounds)


@pytest.mark.parametrize("executor", sorted(set(EXECUTORS) - {"loop"}))
def test_another_executor_is_equal_within_tolerance(executor, copy, verify):
    folder = copy("ppfe")
    code, out, _ = verify(folder, "--executor", executor)
    assert code == 0
    assert verdict(folder)["verdict"] in ("bit-equal", "within tolerance")
    assert verdict(folder)["environment"]["executor"] == executor
    assert "bit-equal" in out or f"executor loop, here {executor}" in out
    assert "were some changed?" not in out


def test_rounds_are_trained_not_taken_over(tiny, launch, trained_rounds, verify, tmp_path):
    launch(tiny("ppfe"), tmp_path / "runs")
    folder = launch(tiny("ppfe", {"reduction": "none"}), tmp_path / "runs").folder
    assert json.loads((folder / "summary.json").read_text())[
        "shared_rounds"
    ]  # of shared rounds that is still there
    trained_rounds.clear()
    assert verify(folder, "--rounds", 2)[0] == 0
    assert sorted(set(trained_rounds)) == [1, 2]


def test_the_clock_does_not_count(copy, verify):
    folder = copy()
    edit_rounds(folder, 2, seconds=1e6, seconds_closing=1e6)
    amend(folder / "summary.json", lambda summary: summary.update(resumed=9))
    assert verify(folder, "--all")[0] == 0
    assert verdict(folder)["verdict"] == "bit-equal"


def test_what_older_records_did_not_tell_does_not_count(copy, verify):
    folder = copy()
    amend(folder / "rounds.jsonl", lambda lines: lines[1].pop("accuracy_std"))
    amend(folder / "config.json", lambda about: about["split"].pop("data_checksum"))
    amend(folder / "summary.json", lambda summary: summary["environment"].pop("code"))
    assert verify(folder)[0] == 0
    assert verdict(folder)["verdict"] == "bit-equal"


# -- different --------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["loss", "adaptation_samples", "evaluated", *COUNTS, *EVALUATED])
def test_a_figure_of_a_round_that_is_not_the_recorded_one_is_named(field, copy, verify):
    folder = copy()
    true = value_of(folder, 2, field)
    wrong = "nothing" if isinstance(true, str) else true + (1 if isinstance(true, int) else 0.01)
    edit_rounds(folder, 2, **{field: wrong})
    code, out, _ = verify(folder)
    assert code == 1
    assert out.startswith("different")
    assert f"round 2, {field}: {wrong} recorded, {true} found" in out
    found = verdict(folder)
    assert (found["verdict"], found["unequal"], found["beyond_tolerance"]) == ("different", 1, 1)
    assert found["largest"] == {"place": "round 2", "field": field, "recorded": wrong, "found": true}


@pytest.mark.parametrize(
    ("gap", "expected"), [(2e-6, "within tolerance"), (8e-4, "within tolerance"), (5e-3, "different")]
)
def test_the_tolerance(gap, expected, copy, verify):
    folder = copy()
    edit_rounds(folder, 3, accuracy_of_nothing=1)  # that no code gives is different, whatever the tolerance
    assert verify(folder)[0] == 1
    shutil.rmtree(folder)
    folder = copy()
    edit_rounds(folder, 3, loss=value_of(folder, 3, "loss") + gap)
    code, out, _ = verify(folder)
    assert code == (expected == "different")
    assert "were some changed?" in out  # the same code, on the same machine
    assert verdict(folder)["verdict"] == expected
    assert verdict(folder)["largest"]["place"] == "round 3"


def test_only_the_whole_run_tells_of_its_end(copy, verify):
    folder = copy()
    edit_rounds(folder, 4, samples=1)
    assert verify(folder, "--rounds", 3)[0] == 0
    assert verify(folder, "--all")[0] == 1


def _shift(name, amount):
    """From one client to another with as many test samples, so that their mean is the same."""

    def tamper(folder):
        head, *lines = (folder / "clients.csv").read_text().splitlines()
        rows, place = [line.split(",") for line in lines], head.split(",").index(name)
        high, low = sorted(range(2), key=lambda client: -float(rows[client][place]))
        for client, step in ((high, -amount), (low, amount)):
            rows[client][place] = f"{float(rows[client][place]) + step:.6f}"
        (folder / "clients.csv").write_text("\n".join([head, *map(",".join, rows)]) + "\n")
        seal(folder)

    return tamper


ENDINGS = {
    "client": (_shift("loss", 0.5), "client 0, loss: "),
    "macro-F1": (_shift("macro_f1", 0.001), "client 0, macro_f1: "),
    "AUC": (_shift("auc", 0.001), "client 0, auc: "),
    "summary": (
        lambda folder: amend(folder / "summary.json", lambda s: s["budget"].update(planned=9)),
        "summary, budget.planned: 9 recorded, 0 found",
    ),
    "diagnostics": (
        lambda folder: amend(
            folder / "diagnostics.json", lambda d: d["stages"][1]["clients"]["beta"].__setitem__(2, 99.0)
        ),
        "diagnostics, stages[1].clients.beta[2]: 99.0 recorded, ",
    ),
}


@pytest.mark.parametrize("part", ENDINGS)
def test_the_whole_run_is_compared_to_its_end(part, copy, verify):
    tamper, where = ENDINGS[part]
    folder = copy("ppfe")
    tamper(folder)
    assert verify(folder, "--rounds", 3)[0] == 0
    code, out, _ = verify(folder, "--all")
    assert code == 1
    assert where in out


def test_training_that_diverges_now_is_different(copy, verify, monkeypatch):
    folder = copy()
    monkeypatch.setattr("pfl_benchmark.engine.rounds._largest", lambda models: torch.full((3,), torch.nan))
    code, out, _ = verify(folder)
    assert code == 1
    assert "round 1, loss: " in out
    assert "found" in out
    assert "diverged" in out


def test_another_number_of_rounds_is_different(copy, verify, monkeypatch, trained_rounds):
    folder = copy()
    trained_rounds.clear()
    monkeypatch.setattr("pfl_benchmark.experiment.verify.plan_rounds", lambda *_: Plan(5, "bytes"))
    code, out, _ = verify(folder)
    assert code == 1
    assert "plan, rounds: 4 recorded, 5 found" in out
    assert not trained_rounds


def test_a_verdict_that_cannot_be_kept_is_told(copy, verify, monkeypatch):
    def forbidden(self, by):
        raise UserError("cannot write verified.json")

    monkeypatch.setattr("pfl_benchmark.experiment.verify.Verdict.save", forbidden)
    code, out, err = verify(copy("fedper"))
    assert code == 0
    assert out.startswith("bit-equal")
    assert "the verdict is not kept: cannot write verified.json" in err


# -- several ----------------------------------------------------------------------------------------


def test_a_results_folder_is_verified_with_its_data_read_once(copy, verify, monkeypatch):
    from pfl_benchmark.datasets import api as datasets

    folders = [copy("ditto"), copy("fedper"), copy("local")]
    edit_rounds(folders[1], 1, loss=9.0)
    loads, load = [], datasets.load
    monkeypatch.setattr(datasets, "load", lambda *a, **k: (loads.append(a), load(*a, **k))[1])
    code, out, err = verify(folders[0].parent, "--json")
    assert code == 1
    assert len(loads) == 1
    found = {entry["record"]: entry["verdict"] for entry in json.loads(out)}
    assert found == {str(folder): "different" if folder == folders[1] else "bit-equal" for folder in folders}
    assert [
        line for line in err.splitlines() if "/3 " in line and "again" in line and "rounds 1-3 of 4" in line
    ]


def _unfinish(folder):
    (folder / "done").unlink()


def _diverge(folder):
    (folder / "done").unlink()
    (folder / "failed.json").write_text('{"reason": "training diverged"}')


BAD = {
    "no record": (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
    "unfinished": (_unfinish, "is not finished"),
    "diverged": (_diverge, "has no result: training diverged"),
    "damaged": (lambda folder: (folder / "clients.csv").write_text("nothing"), "cannot be used"),
    "gone": (shutil.rmtree, "there is no folder"),
    "other split": (
        lambda folder: amend(
            folder / "config.json", lambda about: about["split"].update(checksum="other")
        ),
        "another copy of 'digits' or another split",
    ),
    "other data": (
        lambda folder: amend(
            folder / "config.json", lambda about: about["split"].update(data_checksum="other")
        ),
        "checksum other",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_record_is_named_before_anything_is_trained(fault, copy, verify, trained_rounds):
    good, bad = copy("local"), copy("fedper")
    damage, reason = BAD[fault]
    damage(bad)
    trained_rounds.clear()
    before = content(good)
    refused(verify(good, bad), bad.name, reason)
    assert not trained_rounds
    assert not list(good.parent.glob("*/verified.json"))
    assert content(good) == before


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--rounds 0", "--rounds is '0'; expected how many, a whole number of at least 1"),
        ("--rounds -1", "--rounds"),
        ("--rounds many", "--rounds is 'many'"),
        ("--rounds 5", "--rounds is 5, but the run fedper-digits"),
        ("--rounds 3 --all", "not allowed with"),
        ("--executor none", "unknown executor 'none'"),
        ("--device none", "unknown device 'none'"),
    ],
)
def test_bad_flags(words, reason, copy, verify):
    folder = copy()
    refused(verify(folder, *words.split()), reason)
    assert not (folder / "verified.json").exists()


def test_data_that_are_not_here_are_not_fetched(verify, tmp_path, monkeypatch):
    folder = write_record(tmp_path / "runs", RunConfig(dataset="fmnist", clients=4, rounds=2))
    (tmp_path / "data").mkdir()
    monkeypatch.setattr("pfl_benchmark.datasets.loading.cache.user_cache", lambda: tmp_path / "cache")
    refused(verify(folder, "--data-dir", tmp_path / "data"), "dataset 'fmnist' was not found")


# -- what a verdict is good for ---------------------------------------------------------------------


@pytest.fixture
def other_code(copy):
    """A record that other code computed."""
    folder = copy()
    amend(folder / "summary.json", lambda summary: summary["environment"].update(code="other"))
    return folder


def is_outdated(folder):
    (record,) = Store.scan(folder.parent).records()
    return outdated(record.config, record.summary, record.verified)


def test_a_verdict_of_this_code_makes_a_record_its_own(other_code, verify):
    assert is_outdated(other_code)
    assert verify(other_code)[0] == 0
    assert not is_outdated(other_code)


@pytest.mark.parametrize(
    "change", [{"code": "another"}, {"verdict": "different"}, {"record_digest": "of another content"}]
)
def test_other_verdicts_do_not(change, other_code, verify):
    verify(other_code)
    path = other_code / "verified.json"
    found = {**json.loads(path.read_text()), **change}
    del found["checksum"]
    write_verdict(other_code, found)
    assert is_outdated(other_code)


def test_a_damaged_verdict_is_none(other_code, verify):
    verify(other_code)
    good = (other_code / "verified.json").read_text()
    for text in (good.replace('"rounds": 3', '"rounds": 4'), "", "[]", "{"):
        (other_code / "verified.json").write_text(text)
        assert is_outdated(other_code)


def test_the_verdict_is_no_part_of_the_record(copy, verify):
    folder = copy()
    before = Store.scan(folder.parent).records()[0].digest
    verify(folder)
    (record,) = Store.scan(folder.parent).records()
    assert (record.digest, record.verified["verdict"]) == (before, "bit-equal")


def test_a_changed_record_is_not_verified_any_more(other_code, verify):
    verify(other_code)
    edit_rounds(other_code, 1, seconds=1.0)
    assert is_outdated(other_code)
