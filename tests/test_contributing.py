"""The worked examples of CONTRIBUTING.md: a method, a partition law or a launcher really is one new file."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark.engine.config import RunConfig

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of this checkout with the examples in it."""
    folder = tmp_path_factory.mktemp("checkout")
    method, law, launcher, _ = re.findall(
        r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.DOTALL
    )
    for package in ("algorithms", "benchmark", "datasets", "tests"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "results").mkdir()
    for name in ("pyproject.toml", "CONTRIBUTING.md", "results/paper_results.csv"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "algorithms" / "fast_head.py").write_text(method, encoding="utf-8")
    (folder / "datasets" / "laws" / "power.py").write_text(law, encoding="utf-8")
    (folder / "benchmark" / "launch" / "fresh.py").write_text(launcher, encoding="utf-8")
    return folder


def python(checkout, *words):
    done = subprocess.run(
        [sys.executable, *words], cwd=checkout, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return done.stdout


SMALL = ["--dataset", "digits", "--clients", "4", "--rounds", "2"]
SMALL += ["--local-epochs", "1", "--samples-per-client", "20"]


def test_the_worked_example_is_one_new_file_and_runs(checkout):
    output = python(
        checkout, "-m", "benchmark", "--algo", "fast-head", *SMALL, "--set", "head_rate=5", "--json"
    )
    summary = json.loads(output.splitlines()[-1])
    assert summary["evaluated"] == "personal"
    assert "head_rate=5" in Path(summary["record"]).name
    # Its head is personal: only the body travels, in each direction (1 of 4 clients, then all 4), and once
    # to each client the head at its start.
    head_floats = 330
    body_floats = 15_466 - head_floats
    assert summary["bytes_up"] == (1 + 4) * 4 * body_floats
    assert summary["bytes_down"] == summary["bytes_up"] + 4 * 4 * head_floats
    rest = [["list", "methods"], ["--algo", "fedper", *SMALL], ["compare", "results/runs", "--json"]]
    code = f"from benchmark.cli import main\nfor words in {rest}: print('next'); assert main(words) == 0"
    _, methods, _, compared = python(checkout, "-c", code).split("next\n")
    assert "fast-head" in methods
    (group,) = json.loads(compared)
    assert {run["title"] for run in group["runs"]} == {"fast-head-head_rate=5.0", "fedper"}


def test_the_partition_law_is_one_new_file_and_runs(checkout):
    output = python(checkout, "-m", "benchmark", "--algo", "fedavg", *SMALL, "--exponent", "1.5", "--json")
    record = checkout / json.loads(output.splitlines()[-1])["record"]
    assert record.name.startswith("fedavg-digits-power1.5-seed0-")
    about = json.loads((record / "config.json").read_text())
    assert (about["config"]["partition"], about["config"]["exponent"]) == ("power", 1.5)
    # Of 4 * 19 = 76 samples 1 : 2^-1.5 : 3^-1.5 : 4^-1.5, and one more each.
    assert about["split"]["train_samples"] == [1 + 5, 1 + 45]
    assert "--exponent 1.0" in python(checkout, "-m", "benchmark", "list", "partitions")
    # Records of other laws are those that they are without it.
    python(checkout, "-m", "benchmark", "--algo", "local", *SMALL)
    (other,) = (checkout / "results" / "runs").glob("local-*")
    config = RunConfig.from_dict(json.loads((other / "config.json").read_text())["config"])
    assert other.name.endswith(f"-{config.hash}")


def test_the_suite_takes_the_example_in(checkout):
    """All that is tested of every method and every law, and what counts methods."""
    places = [
        "algorithms",
        "engine",
        "datasets/test_laws.py",
        "cli/test_list_and_data.py",
        "present/test_tables.py",
        "papers/ppfe/test_studies.py",
    ]
    chosen = "fast-head or power or exponent or test_config or test_list or test_tables or test_studies"
    words = [*(f"tests/{place}" for place in places), "-k", chosen, "-v", "-p", "no:cacheprovider"]
    output = python(checkout, "-m", "pytest", *words)
    (passed,) = re.findall(r"(\d+) passed", output)
    assert int(passed) > 150


USE = """
import json
from pathlib import Path

from benchmark.engine.config import RunConfig
from benchmark.launch import Options, find
from benchmark.config.resolve import with_hyper
from benchmark.experiment.execution import Execution
from benchmark.experiment.display import CellProgress
from benchmark.studies.grid import Cell

if __name__ == "__main__":
    small = dict(dataset="digits", clients=4, rounds=2, local_epochs=1)
    small |= dict(samples_per_client=20, test_samples_per_client=10)
    cell = Cell(with_hyper(RunConfig(algo="fedavg", **small), {}), "a cell", ())
    execution = Execution(results_dir=Path("results/fresh"))
    with find("fresh")(Options(None, execution, [cell], {"niceness": 1})) as launcher:
        outcome = launcher.run([cell], CellProgress([cell], {cell.config.hash: 1.0}))
    print(json.dumps([cell.title for cell in outcome.done]))
"""


def test_the_launcher_is_one_new_file_and_runs_cells(checkout):
    (checkout / "use_fresh.py").write_text(USE, encoding="utf-8")
    assert json.loads(python(checkout, "-m", "use_fresh")) == ["a cell"]
    assert len(list(checkout.glob("results/fresh/fedavg-*/done"))) == 1
    assert "--niceness N" in python(checkout, "-m", "benchmark", "tables", "--help")
