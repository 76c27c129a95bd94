"""A paper can be deleted: what is left is a whole harness."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pfl_benchmark.papers

ROOT = Path(__file__).resolve().parents[2]
PAPERS = sorted(path.parent.name for path in Path(pfl_benchmark.papers.__file__).parent.glob("*/__init__.py"))
# What reads the catalogue or the makers of tables and figures as they are, papers' among them.
SOME = "test_formats or test_figures or test_list or test_catalogue or test_same_data"
SOME += " or a_cell_is_that_cell or names_of_tables"


@pytest.fixture(scope="module")
def rest(tmp_path_factory):
    """A copy of this checkout without any paper and the tests of papers."""
    folder = tmp_path_factory.mktemp("rest")
    for package in ("algorithms", "benchmark", "datasets", "docs", "tests"):
        ignored = shutil.ignore_patterns("*.pyc.*")
        shutil.copytree(ROOT / package, folder / package, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "pfl_benchmark", folder, follow_symlinks=False)
    for name in ("pyproject.toml", "CONTRIBUTING.md", "README.md", "CITATION.cff"):
        shutil.copy(ROOT / name, folder / name)
    for paper in PAPERS:
        shutil.rmtree(folder / "benchmark" / "papers" / paper)
    shutil.rmtree(folder / "tests" / "papers")
    return folder


def python(folder, *words):
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_its_tests_are_found_and_those_of_what_papers_add_to_pass(rest):
    """All tests are imported; of them those run that a paper could have a hand in."""
    output = python(rest, "-m", "pytest", "-p", "no:cacheprovider", "-v", "tests", "-k", SOME)
    (passed,) = re.findall(r"(\d+) passed", output)
    assert int(passed) > 80


COMMANDS = (["list", "studies"], ["tables", "--only", "methods", "--dry-run"], ["--help"])


def test_its_commands_go_on(rest):
    assert PAPERS
    code = f"from pfl_benchmark.cli import main\nfor words in {COMMANDS}: print('next'); main(words)"
    _, studies, plan, usage = python(rest, "-c", code).split("next\n")
    assert "bound" not in usage
    assert "methods" in studies
    assert "fixed-heads" not in studies
    assert "methods" in plan
