"""``./run_all.sh doctor``: it says what is here and what is missing, also on a machine with nothing."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pfl_benchmark.datasets.api import DATASETS
from pfl_benchmark.doctor import checks
from pfl_benchmark.installation import requirements

ROOT = Path(__file__).resolve().parents[2]


def test_on_a_machine_with_nothing(tmp_path):
    """Without site-packages: no traceback, exit code 2, and what to do."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PFL_PYTHON": sys.executable}
    words = [sys.executable, "-S", "-m", "pfl_benchmark.doctor"]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "! packages" in done.stdout
    assert "torch, torchvision, numpy" in done.stdout
    assert "-m pip install 'torch>=" in done.stdout
    assert "memory" in done.stdout
    assert done.stderr == "\nerror: 1 of the above, marked !, must be mended first\n"


def test_here(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("PFL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data" / "cifar10").mkdir(parents=True)
    (tmp_path / "data" / "cifar10" / "train.parquet").touch()
    assert checks.report() == 0
    lines = capsys.readouterr().out.splitlines()
    named = {line[2:22].strip(): line for line in lines if line[2:3] != " "}
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


def needed(monkeypatch, wanted):
    """Let the program need other packages."""
    extras = requirements(optional=True)
    monkeypatch.setattr(checks, "requirements", lambda optional=False: extras if optional else wanted)


def test_an_installed_package_tells_its_own_requirements(monkeypatch):
    monkeypatch.setattr(checks, "CHECKOUT", None)
    needed(monkeypatch, {"numpy": "numpy>=1", "no-such": "no-such>=2"})
    found = {one.name: one for one in checks.packages()}
    assert (found["packages"].value, found["packages"].state) == ("no-such not installed", "missing")
    assert found["packages"].remedy == f"{sys.executable} -m pip install 'no-such>=2'"
    assert "tests" not in found


def test_an_old_package_and_one_that_cannot_be_imported(monkeypatch, tmp_path):
    needed(monkeypatch, {"numpy": "numpy>=999", "rich": "rich>=1"})
    monkeypatch.setattr(checks, "_MODULES", {"rich": "no_such_module"})
    monkeypatch.setenv("PFL_PYTHON", sys.executable)
    old, *_ = checks.packages()
    assert old.state == "missing"
    assert "is older than numpy>=999" in old.value
    needed(monkeypatch, {"numpy": "numpy>=1", "rich": "rich>=1", "scipy": "scipy>=1"})
    monkeypatch.setitem(checks._MODULES, "scipy", "no_such_module_either")
    broken, *_ = checks.packages()  # the first, on which others may depend
    assert broken.state == "missing"
    assert "No module named 'no_such_module'" in broken.value
    assert broken.remedy.endswith("install --force-reinstall 'rich>=1'")


def test_what_is_optional_is_named_as_the_project_requires_it():
    wanted = requirements(optional=True)
    assert {*checks._OPTIONAL} <= {*wanted}
    assert wanted["torchtext"] == "torchtext==0.6.0"
    assert not {*wanted} & {*requirements()}


def test_folders_that_may_not_be_searched(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "closed" / "cache"))
    monkeypatch.setenv("PFL_DATA_DIR", str(tmp_path / "closed" / "data"))
    real, closed = os.stat, str(tmp_path / "closed") + os.sep

    def stat(path, *args, **kwargs):
        if str(path).startswith(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", stat)
    _, cache = checks.disk()
    assert cache.value.endswith(f"free for {tmp_path / 'closed' / 'cache' / 'pfl-benchmark'}")
    found = {one.name: one for one in checks.data()}
    assert found["data femnist"].state == "note"


def test_everything_missing_has_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(checks, "_DISK", 1e9)
    monkeypatch.setattr(checks, "_MEMORY", 1e9)
    found = [*checks.disk(), *checks.memory()]
    assert [one.state for one in found] == ["note"] * 3
    assert all(one.remedy for one in found)
