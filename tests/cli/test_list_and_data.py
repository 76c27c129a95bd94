"""``list`` and ``data``."""

import dataclasses

import pytest
from PIL import Image

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.engine.hyper import parse_hyper
from pfl_benchmark.errors import flag
from pfl_benchmark.experiment.prepare import split_of
from pfl_benchmark.models import ARCHITECTURES
from pfl_benchmark.models.registry import PACKAGES
from pfl_benchmark.studies.catalogue import STUDIES

KNOWN = {
    "methods": ALGORITHMS,
    "settings": SETTINGS,
    "datasets": datasets.DATASETS,
    "networks": [*ARCHITECTURES, *(f"{package}:NAME" for package in PACKAGES)],
    "partitions": datasets.PARTITIONERS,
    "studies": STUDIES,
}


def test_list_for_people(command):
    answer = command("list")
    assert (answer.code, answer.err) == (0, "")
    for names in KNOWN.values():
        for name in names:
            assert f"  {name} " in answer.out
    for method in ALGORITHMS.values():
        assert method.title in answer.out
        for spec in dataclasses.fields(method.Hyper):
            assert f"--set {spec.name}=" in answer.out
        for name in method.ablations:
            assert f"--ablation {name} " in answer.out
    for partitioner in datasets.PARTITIONERS.values():
        assert all(f"    {flag(name)} " in answer.out for name in partitioner.options())
    assert all(len(line) <= 110 and line == line.rstrip() for line in answer.out.splitlines())


@pytest.mark.parametrize("what", KNOWN)
def test_list_one_kind(what, command):
    found = command(f"list {what} --json").json
    assert list(found) == [what]
    assert {entry["name"] for entry in found[what]} == set(KNOWN[what])
    assert found[what] == command("list --json").json[what]
    text = command(f"list {what}").out
    assert text.startswith(what.capitalize())


def test_settings_fit_a_narrow_terminal(command, monkeypatch):
    monkeypatch.setattr("pfl_benchmark.console.terminal._PLAIN_WIDTH", 80)
    answer = command("list settings")
    assert "…" not in answer.out
    for name, setting in SETTINGS.items():
        config = RunConfig(**setting.values)
        (row,) = [line.split() for line in answer.out.splitlines() if line.startswith(f"  {name} ")]
        told = [config.clients, config.samples_per_client, config.test_samples_per_client, config.rounds]
        if setting.values["partition"] == "pooled":  # by a share of each client's samples
            del told[2]
        assert row[-len(told) :] == [f"{number:,}" for number in told]


def test_listed_hyper_parameters_can_be_typed(command):
    """What is shown as ``--set key=value`` is what the method reads as its default."""
    seen = []
    for line in command("list methods").out.splitlines():
        if line.startswith("  ") and line[2] != " ":
            method = ALGORITHMS[line.split()[0]]
        elif line.startswith("    --set "):
            key, _, value = line.split()[1].partition("=")
            assert getattr(parse_hyper(method.Hyper, {key: value}, method.name), key) == getattr(
                method.Hyper(), key
            )
            seen.append((method.name, key))
    fields = {name: dataclasses.fields(method.Hyper) for name, method in ALGORITHMS.items()}
    assert {*seen} == {(name, spec.name) for name, specs in fields.items() for spec in specs}


def test_data(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = command("data --setting digits-s2")
    assert (answer.code, answer.err) == (0, "")
    assert "--full shows all" in answer.out
    assert answer.out.splitlines()[-1].split() == ["picture", "results/splits/digits-s2-seed0.png"]
    with Image.open("results/splits/digits-s2-seed0.png") as image:
        assert image.format == "PNG"
    digits = datasets.load("digits")
    split = split_of(RunConfig(**SETTINGS["digits-s2"].values), digits)
    info = datasets.DATASETS["digits"]
    for part in (
        digits.source,
        info.licence,
        info.citation,
        split.checksum,
        "1,347 training, 450 test",
        "20 clients",
        "2 a client",
    ):
        assert part in answer.out
    full = command("data --setting digits-s2 --full").out.splitlines()
    table = [line.split()[:4] for line in full if line[:6].strip().isdigit()]
    assert table == [[str(k), "60", "20", "2"] for k in range(20)]


def test_data_of_a_changed_setting(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "data --dataset digits --dirichlet 0.1 --clients 5 --seed 3 --json"
    found = command(words).json
    config = RunConfig(
        **{
            **SETTINGS["digits-s2"].values,
            "partition": "dirichlet",
            "dirichlet": 0.1,
            "clients": 5,
            "seed": 3,
        }
    )
    digits = datasets.load("digits")
    split = split_of(config, digits)
    assert (found["checksum"], found["data_checksum"]) == (split.checksum, digits.checksum)
    assert found["changed"] == {"partition": "dirichlet", "dirichlet": 0.1, "clients": 5}
    assert [client["train"] for client in found["clients"]] == split.train_sizes.tolist()
    assert [len(client["class_names"]) for client in found["clients"]] == [
        c["classes"] for c in found["clients"]
    ]
    assert (tmp_path / found["picture"]).exists()
    assert split.checksum[:8] in found["picture"]
    own = command(words, "--out mine.png").json
    assert own["picture"] == "mine.png"
    assert (tmp_path / "mine.png").exists()
