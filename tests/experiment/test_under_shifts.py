"""Runs under shifts: every method, every executor, resume, new clients, validation, verify, export."""

import dataclasses
import json

import numpy as np
import pytest

import pfl_benchmark.experiment.runner as runner
from pfl_benchmark.algorithms import ALGORITHMS, needed
from pfl_benchmark.cli import main
from pfl_benchmark.commands.run import _details
from pfl_benchmark.datasets.api import SHIFTS
from pfl_benchmark.interface import load_records, run
from pfl_benchmark.present.figures import make_figures
from pfl_benchmark.present.tables import make_table
from pfl_benchmark.studies.clusters import clusters_found, right_clusters

SMALL = {
    "dataset": "digits",
    "clients": 6,
    "participation": 0.5,
    "samples_per_client": 20,
    "test_samples_per_client": 10,
    "rounds": 4,
    "local_epochs": 1,
    "eval_every": 2,
    "device": "cpu",
    "progress": False,
}
MANY = (
    "quantity=power:0.5",
    "concept=permute:2",
    "labels=noise:0.1",
    "drift=3:feature=corruption:2",
)
ALONE = [shift.usage().replace("=20:", "=3:") for shift in SHIFTS.values()]


def lines_of(record):
    return [{k: v for k, v in line.items() if not k.startswith("seconds")} for line in record.rounds]


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_every_method_under_all_kinds_at_once(algo, tmp_path):
    new = 0.34 if not ALGORITHMS[algo].no_newcomers else 0.0
    record = run(
        algo, shift=[*MANY], new_clients=new, validation=0.2, results_dir=tmp_path, **needed(algo), **SMALL
    )
    assert record.config.shift == "+".join(MANY).replace("drift=3:", "drift=3:0.5:")
    assert {*record.summary["drift"]} == {"round", "before", "after", "recovery"}
    assert 0 <= record.summary["ece_debiased"] <= 2 * record.summary["ece"]
    assert [line["round"] for line in record.rounds if "brier" in line] == [2, 3, 4]


@pytest.mark.parametrize("shift", ALONE)
def test_executors_agree(shift, tmp_path):
    found = [
        run("ditto", shift=shift, executor=name, results_dir=tmp_path / name, **SMALL)
        for name in ("loop", "stacked")
    ]
    one, other = ([line["loss"] for line in record.rounds] for record in found)
    np.testing.assert_allclose(one, other, atol=1e-4)
    assert found[0].split == found[1].split


@pytest.mark.parametrize("shift", [ALONE[0], "drift=3:concept=permute:2"])
@pytest.mark.parametrize("stop", [1, 2, 3])
def test_resume_is_exact(shift, stop, tmp_path, monkeypatch):
    whole = run("fedper", shift=shift, results_dir=tmp_path / "whole", **SMALL)
    play = runner.run
    monkeypatch.setattr(
        runner, "run", lambda *words: play(*words[:6], 0.0, *words[7:])
    )  # a checkpoint a round

    def interrupt(line):
        if line["round"] == stop:
            raise KeyboardInterrupt

    parts = {"shift": shift, "results_dir": tmp_path / "parts", **SMALL}
    with pytest.raises(KeyboardInterrupt):
        run("fedper", on_round=interrupt, **parts)
    again = run("fedper", **parts)
    assert again.summary["resumed"] >= 1
    assert lines_of(again) == lines_of(whole)
    assert again.summary.get("drift") == whole.summary.get("drift")


@pytest.mark.parametrize("shift", ["feature=corruption", "drift=3:labels=noise:0.5"])
def test_verify_and_compare(shift, tmp_path, capsys):
    record = run("fedavg", shift=shift, results_dir=tmp_path, **SMALL)
    run("local", shift=shift, results_dir=tmp_path, **SMALL)
    assert main(["verify", str(record.folder), "--all", "--device", "cpu"]) == 0
    assert "bit-equal" in capsys.readouterr().out
    assert main(["compare", str(tmp_path), "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)
    assert shift.partition(":")[0].split("=")[0] in group["setting"]
    assert len(group["runs"]) == 2
    (other,) = (row for row in group["runs"] if row["title"] != "local")
    assert 0 <= other["worse_than_local"] <= 1
    assert {*load_records(tmp_path)["method"]} == {"fedavg", "local"}


@pytest.mark.parametrize("form", ["leaf", "pfllib"])
def test_export_writes_changed_samples(form, tmp_path):
    words = f"data --dataset digits --clients 4 --shift concept=permute:2 --export {form} {tmp_path / 'made'}"
    assert main([*words.split(), "--out", str(tmp_path / "x.png")]) == 0
    plain = words.replace(" --shift concept=permute:2", "").replace("made", "plain")
    assert main([*plain.split(), "--out", str(tmp_path / "y.png")]) == 0
    made, other = (_exported(tmp_path / name / "train", form) for name in ("made", "plain"))
    assert [len(y) for y in made] == [len(y) for y in other]
    moved = [not np.array_equal(*pair) for pair in zip(made, other, strict=True)]
    assert sum(moved) >= 2  # the labels of one of the two groups at least


def _exported(folder, form):
    """Every client's labels."""
    if form == "leaf":
        content = json.loads(next(folder.glob("*.json")).read_text())
        return [np.array(content["user_data"][user]["y"]) for user in content["users"]]
    files = [np.load(folder / f"{client}.npz", allow_pickle=True) for client in range(4)]
    return [file["data"].item()["y"] for file in files]


def test_data_drift_in_the_round_that_is_named(tmp_path):
    """A client that trains alone has the same losses before, and others from then on."""
    losses = [
        [line["loss"] for line in run("local", shift=shift, results_dir=tmp_path, **SMALL).rounds]
        for shift in ("drift=3:1:labels=noise:1", "drift=4:1:labels=noise:1")
    ]
    assert [early == late for early, late in zip(*losses, strict=True)] == [True, True, False, False]


def test_files_of_others_cannot_drift(tmp_path, capsys):
    words = f"data --setting digits-s2 --shift drift=3:concept=permute --export leaf {tmp_path / 'made'}"
    assert main([*words.split(), "--out", str(tmp_path / "x.png")]) == 2
    assert "cannot say that data change in round 3" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_recovery_is_of_models_of_one_kind(tmp_path):
    """FedAvg+FT evaluates the global model until the end, and then fine-tuned ones."""
    record = run("fedavg-ft", shift="drift=2:1:labels=noise:0.9", results_dir=tmp_path, **SMALL)
    lines = {line["round"]: line for line in record.rounds if "accuracy" in line}
    drift = record.summary["drift"]
    assert {line["evaluated"] for line in lines.values()} == {"global", "personal"}
    assert drift["before"] == lines[1]["accuracy"]
    assert drift["after"] == lines[2]["accuracy"]
    alike = {
        n
        for n, line in lines.items()
        if line["evaluated"] == "global" and line["accuracy"] >= drift["before"]
    }
    assert drift["recovery"] == (min(alike - {1}) - 1 if alike - {1} else None)
    ((_, after, about),) = [row for row in _details(record.summary) if row[0] == "  drift"]
    assert after == f"{100 * drift['after']:.2f} %"
    assert "after round 2" in about


def test_a_drift_that_a_budget_does_not_reach_is_refused(tmp_path, capsys):
    flags = [f"--{n.replace('_', '-')}={v}" for n, v in SMALL.items() if n != "progress"]
    words = [
        "--algo",
        "fedavg",
        *flags,
        "--budget=bytes",
        "--byte-budget=1400000",
        "--shift=drift=4:concept=permute",
    ]
    assert main([*words, "--results-dir", str(tmp_path)]) == 2
    assert "the bytes of this run allow" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("groups", "clusters", "share"),
    [
        ([0, 0, 1, 1], [1, 1, 0, 0], 1.0),
        ([0, 0, 1, 1], [0, 0, 0, 0], 0.5),
        ([0, 1, 2, 2], [0, 0, 1, 1], 0.75),
    ],
)
def test_share_of_clients_in_the_right_cluster(groups, clusters, share):
    assert right_clusters(groups, clusters) == share


def test_clusters_of_ifca_are_held_against_groups(tmp_path):
    record = run("ifca", shift="concept=permute:2", results_dir=tmp_path, **SMALL)
    assert len(record.diagnostics["clusters"]) == 6
    found = clusters_found(record)
    assert found.groups == 2
    assert found.clusters == len({*record.diagnostics["clusters"]})
    assert 0.5 <= found.right <= 1
    assert clusters_found(dataclasses.replace(record, shifts={})) is None
    drifting = {shift: {"drifting": [0], **facts} for shift, facts in record.shifts.items()}
    assert clusters_found(dataclasses.replace(record, shifts=drifting)) is None


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """The results of a grid in which the shift varies, from a file."""
    from pfl_benchmark.records.store import Store
    from pfl_benchmark.studies.grid_file import read_entries
    from pfl_benchmark.studies.own_grid import make_grid
    from pfl_benchmark.studies.results import collect

    root = tmp_path_factory.mktemp("shifts")
    (root / "grid.yaml").write_text(
        "algo: [fedavg, local, fedper, ifca]\nsetting: digits-s2\nclients: 6\nrounds: 2\nlocal_epochs: 1\n"
        "temperature_scaling: true\n"
        "vary:\n"
        "  shift: [none, [concept=permute:2, labels=noise:0.1], drift=2:classes=other, quantity=power]\n"
    )
    words = ["grid", str(root / "grid.yaml"), "--device", "cpu", "--results-dir", str(root / "made")]
    assert main(words) == 0
    own = make_grid("grid", read_entries(root / "grid.yaml"))
    return collect(own.study, own.profile, Store.scan(root / "made"), None)


def test_table_of_scores(studied):
    assert len(studied.records) == 16
    table = make_table(studied, "calibration-scores")
    facts = [row[0].facts for row in table.rows]
    assert len(facts) == 16
    assert [head.text for head in table.heads][-4:] == ["NLL at T", "Brier at T", "ECE at T", "debiased at T"]
    assert all(0 <= line["scaled_ece_debiased"] <= 2 * line["scaled_ece"] for line in facts)
    assert "split: distinct, shifts by setting;" in table.caption
    for line in facts:
        if line["method"] == "Local Only":
            assert line["worse_than_local"] == 0
        assert all(line[name] is not None for name in ("test_loss", "brier", "ece", "worse_than_fedavg"))


def test_table_of_clusters(studied):
    (line,) = [row[0].facts for row in make_table(studied, "clusters").rows]
    assert (line["method"], line["seeds"]) == ("IFCA", 1)
    assert "concept=permute:2" in line["setting"]
    record = studied.at(line["method"], line["setting"])[0]
    assert line["right"] == clusters_found(record).right
    assert line["accuracy"] == record.summary["accuracy"]


def test_table_of_drift(studied):
    lines = [row[0].facts for row in make_table(studied, "drift").rows]
    assert [line["method"] for line in lines] == studied.rows
    for line in lines:
        (record,) = studied.at(line["method"], line["setting"])
        assert record.summary["drift"] | {"round": 2, "recovery": line["recovery"]} == {
            "round": 2, "before": line["before"], "after": line["after"], "recovery": line["recovery"],
        }  # fmt: skip
        assert line["recovered"] == (line["recovery"] is not None)


def test_figures_over_shifts(studied):
    study = dataclasses.replace(studied.study, figures=("rank-map", "critical-difference"))
    pictures = make_figures(dataclasses.replace(studied, study=study))
    assert [picture.name for picture in pictures] == [
        f"{study.name}-{name}" for name in ("ranks", "critical-difference")
    ]
    assert "4 settings" in pictures[1].caption
    few = dataclasses.replace(studied, records=dict([*studied.records.items()][:3]), study=study)
    assert len(make_figures(few)) == 1
