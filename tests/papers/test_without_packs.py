"""A pack can be deleted: what is left is a whole harness."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import benchmark.papers

ROOT = Path(__file__).resolve().parents[2]
PACKS = sorted(path.parent.name for path in Path(benchmark.papers.__file__).parent.glob("*/__init__.py"))
SOME = (
    "present",
    "render",
    "studies",
    "records/test_store.py",
    "records/test_same_data.py",
    "cli/test_list_and_data.py",
    "cli/test_report_command.py",
    "cli/test_tables_command.py",
)


@pytest.fixture(scope="module")
def rest(tmp_path_factory):
    """A copy of this checkout without any pack and the tests of packs."""
    folder = tmp_path_factory.mktemp("rest")
    for package in ("algorithms", "benchmark", "datasets", "tests"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "CONTRIBUTING.md", "CITATION.cff"):
        shutil.copy(ROOT / name, folder / name)
    for pack in PACKS:
        shutil.rmtree(folder / "benchmark" / "papers" / pack)
    shutil.rmtree(folder / "tests" / "papers")
    return folder


def python(folder, *words):
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_its_tests_are_found_and_those_of_what_packs_add_to_pass(rest):
    """All tests are imported; of them those run that a pack could have a hand in."""
    python(rest, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    python(rest, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{place}" for place in SOME))


def test_its_commands_go_on(rest):
    assert PACKS
    assert "bound" not in python(rest, "-m", "benchmark", "--help")
    studies = python(rest, "-m", "benchmark", "list", "studies")
    assert "methods" in studies
    assert "fixed-heads" not in studies
    assert "methods" in python(rest, "-m", "benchmark", "tables", "--only", "methods", "--dry-run")
