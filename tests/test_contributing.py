"""The worked example of CONTRIBUTING.md: adding a method really is one new file."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of this checkout with the example in it."""
    folder = tmp_path_factory.mktemp("checkout")
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = next(code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "FastHead" in code)
    for package in ("algorithms", "benchmark", "datasets", "tests"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "results").mkdir()
    for name in ("pyproject.toml", "CONTRIBUTING.md", "results/paper_results.csv"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "algorithms" / "fast_head.py").write_text(code, encoding="utf-8")
    return folder


def python(checkout, *words):
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return done.stdout


def test_the_worked_example_is_one_new_file_and_runs(checkout):
    small = [
        "--dataset",
        "digits",
        "--clients",
        "4",
        "--rounds",
        "2",
        "--local-epochs",
        "1",
        "--samples-per-client",
        "20",
    ]
    output = python(checkout, "benchmark", "--algo", "fast-head", *small, "--set", "head_rate=5", "--json")
    summary = json.loads(output.splitlines()[-1])
    assert summary["evaluated"] == "personal"
    assert "head_rate=5" in Path(summary["record"]).name
    # Its head is personal: only the body travels, in each direction (1 of 4 clients, then all 4), and once
    # to each client the head at its start.
    head_floats = 330
    body_floats = 15_466 - head_floats
    assert summary["bytes_up"] == (1 + 4) * 4 * body_floats
    assert summary["bytes_down"] == summary["bytes_up"] + 4 * 4 * head_floats
    assert "fast-head" in python(checkout, "benchmark", "list", "methods")
    python(checkout, "benchmark", "--algo", "fedper", *small)
    (contest,) = json.loads(python(checkout, "benchmark", "compare", "results/runs", "--json"))
    assert {run["title"] for run in contest["runs"]} == {"fast-head-head_rate=5.0", "fedper"}


def test_the_suite_takes_the_example_in(checkout):
    """All that is tested of every method, and what counts methods."""
    places = ["algorithms", "engine", "present/test_tables.py", "harness/test_studies.py"]
    chosen = "fast-head or test_tables or test_studies"
    words = [*(f"tests/{place}" for place in places), "-k", chosen, "-v", "-p", "no:cacheprovider"]
    output = python(checkout, "pytest", *words)
    (passed,) = re.findall(r"(\d+) passed", output)
    assert int(passed) > 150
