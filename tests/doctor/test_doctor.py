"""``./run_all.sh doctor``: it says what is here and what is missing, also on a machine with nothing."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pfl_benchmark.datasets.api import DATASETS
from pfl_benchmark.doctor import checks

ROOT = Path(__file__).resolve().parents[2]


def test_on_a_machine_with_nothing(tmp_path):
    """Without site-packages: no traceback, exit code 2, and what to do."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PFL_PYTHON": sys.executable}
    words = [sys.executable, "-S", "-m", "pfl_benchmark.doctor"]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "! packages" in done.stdout
    assert "torch, torchvision, numpy" in done.stdout
    assert "./run_all.sh" in done.stdout
    assert "memory" in done.stdout
    assert done.stderr == "\nerror: 1 of the above, marked !, must be mended first\n"


def test_here(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("PFL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data" / "cifar10").mkdir(parents=True)
    (tmp_path / "data" / "cifar10" / "train.parquet").touch()
    assert checks.report() == 0
    lines = capsys.readouterr().out.splitlines()
    named = {line[2:20].strip(): line for line in lines if line[2:3] != " "}
    assert {"Python", "packages", "PyTorch", "cores", "memory", "records", "cache", "data folder"} <= {*named}
    assert {f"data {name}" for name in DATASETS} <= {*named}
    assert named["data digits"].startswith("  ")
    assert named["data cifar100"].startswith("- ")
    assert any("cifar-100-python.tar.gz, 169 MB" in line for line in lines)
    assert "cannot be read" in named["data cifar10"]
    assert any("test.parquet is missing" in line for line in lines)
    assert lines[-1].startswith("ready")


@pytest.mark.parametrize(
    ("absent", "state", "name"),
    [("torch", "missing", "packages"), ("ruff", "note", "tests"), ("ray", "note", "optional")],
)
def test_a_missing_package(absent, state, name, monkeypatch):
    real = importlib.metadata.version

    def version(wanted):
        if wanted == absent:
            raise importlib.metadata.PackageNotFoundError(wanted)
        return real(wanted)

    monkeypatch.setattr(importlib.metadata, "version", version)
    (found,) = [one for one in checks.packages() if one.name == name and absent in one.value]
    assert found.state == state
    assert found.remedy


def test_an_installed_package_tells_its_own_requirements(monkeypatch):
    monkeypatch.setattr(checks, "CHECKOUT", None)
    monkeypatch.setattr(checks, "requirements", lambda: {"numpy": "numpy>=1", "no-such": "no-such>=2"})
    found = {one.name: one for one in checks.packages()}
    assert (found["packages"].value, found["packages"].state) == ("no-such not installed", "missing")
    assert found["packages"].remedy == "python -m pip install 'no-such>=2'"
    assert "tests" not in found


def test_everything_missing_has_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(checks, "_DISK", 1e9)
    monkeypatch.setattr(checks, "_MEMORY", 1e9)
    found = [*checks.disk(), *checks.memory()]
    assert [one.state for one in found] == ["note"] * 3
    assert all(one.remedy for one in found)
