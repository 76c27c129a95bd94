"""The worked examples of docs/site/extend: a method, a partitioner, networks and others are one new file."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.algorithm import Algorithm

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("method", "partitioner", "shift", "network", "plugins", "dataset", "launcher", "tracker", "format")
TEXT = "\n\n".join((ROOT / f"docs/site/extend/{name}.md").read_text(encoding="utf-8") for name in PAGES)
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)

SMALL = ["--dataset", "digits", "--clients", "4", "--rounds", "2"]
SMALL += ["--local-epochs", "1", "--samples-per-client", "20"]
COMMANDS = {
    "method": ["--algo", "fast-head", *SMALL, "--set", "head_rate=5", "--json"],
    "methods": ["list", "methods"],
    "other method": ["--algo", "fedper", *SMALL],
    "compared": ["compare", "results/runs", "--json"],
    "partitioner": ["--algo", "fedavg", *SMALL, "--exponent", "1.5", "--json"],
    "partitioners": ["list", "partitions"],
    "shift": ["--algo", "fedper", *SMALL, "--shift", "feature=upside-down", "--json"],
    "shifts": ["list", "shifts"],
    "network": ["--algo", "fedper", *SMALL, "--network", "small-net", "--json"],
    "networks": ["list", "networks"],
    "flags": ["tables", "--help"],
    "other partitioner": ["--algo", "local", *SMALL],
    "data": ["data", "--dataset", "bars", "--plugin", "bars.py", "--json"],
    "dataset": ["--algo", "fedper", "--dataset", "bars", "--plugin", "bars.py", "--rounds", "6", "--json"],
}

# Everything that is run with the examples, in one process; the launcher's workers import this file again.
PROGRAM = """
import json
import sys
from pathlib import Path

from pfl_benchmark.cli import main
from pfl_benchmark.resolve.run import with_hyper
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.experiment.display import RunsProgress
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.launch import Options, find
from pfl_benchmark.present.render import _files
from pfl_benchmark.render.table import Cell as Value, Head, Table
from pfl_benchmark.studies.catalogue import STUDIES
from pfl_benchmark.studies.grid import PlannedRun


def launcher():
    small = dict(dataset="digits", clients=4, rounds=2, local_epochs=1)
    small |= dict(samples_per_client=20, test_samples_per_client=10)
    run = PlannedRun(with_hyper(RunConfig(algo="fedavg", **small), {}), "a run", ())
    execution = Execution(results_dir=Path("results/fresh"))
    with find("fresh")(Options(None, execution, [run], {"niceness": 1})) as launcher:
        report = launcher.run([run], RunsProgress([run], {run.config.hash: 1.0}))
    print(json.dumps([run.title for run in report.done]))


def table():
    heads = (Head("method", words=True), Head("accuracy"))
    row = (Value("a | b"), Value(0.5, "percent", paper=0.4))
    table = Table("Title", "Caption.", heads, (row,), name="mine")
    print(_files(STUDIES["methods"], [table], [], [], ())["tables/mine.org"])


if __name__ == "__main__":
    for words in json.loads(sys.argv[1]):
        assert main(words) == 0, words
        print("next")
    launcher()
    print("next")
    table()
"""


def words_in_code(text):
    return set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`", text))))


HOOKS = {name for name in vars(Algorithm) if not name.startswith("_")}


def test_every_hook_is_named():
    assert words_in_code(re.sub(r"(?ms)^```.*?^```", "", TEXT)) >= HOOKS


def test_examples_of_hooks_have_them():
    """One of the files of a row, where there are any: it defines, sets or calls the hook."""
    tables = re.findall(r"^\| need \| hook \| example \|\n(.*?)\n\n", TEXT, flags=re.M | re.S)
    rows = [line.strip("| ").split(" | ") for table in tables for line in table.splitlines()[1:]]
    assert len(rows) > 30
    for need, hooks, *examples in rows:
        places = [ROOT / "algorithms" / name for name in re.findall(r"`([\w/.]+)`", "".join(examples))]
        files = [file for place in places for file in (place.glob("*.py") if place.is_dir() else [place])]
        code = "\n".join(file.read_text(encoding="utf-8") for file in files)
        for hook in words_in_code(re.sub(r"\(.*?\)", "", hooks)) & HOOKS:
            assert not code or re.search(rf"(?m)(def |self\.|^    ){hook}\b", code), f"{need}: {hook}"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of this checkout with the examples in it."""
    folder = tmp_path_factory.mktemp("checkout")
    method, partitioner, shift, network, table = re.findall(r"Saved as `([a-z_/]+\.py)`", TEXT)
    places = (method, partitioner, shift, network, "bars.py")
    places += ("benchmark/launch/fresh.py", "csv_tracker.py", table)
    for package in ("algorithms", "benchmark", "datasets", "tests"):
        ignored = shutil.ignore_patterns("*.pyc.*")
        shutil.copytree(ROOT / package, folder / package, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "pfl_benchmark", folder, follow_symlinks=False)
    for name in ("pyproject.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder / name)
    for place, example in zip(places, EXAMPLES, strict=True):
        (folder / place).write_text(example, encoding="utf-8")
    return folder


def python(checkout, *words):
    done = subprocess.run(
        [sys.executable, *words], cwd=checkout, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def printed(checkout):
    """What the commands, the launcher and the table print, by name."""
    (checkout / "examples.py").write_text(PROGRAM, encoding="utf-8")
    output = python(checkout, "examples.py", json.dumps(list(COMMANDS.values())))
    return dict(zip([*COMMANDS, "launcher", "table"], output.split("next\n"), strict=True))


def test_the_method_is_one_new_file_and_runs(printed):
    summary = json.loads(printed["method"].splitlines()[-1])
    assert summary["evaluated"] == "personal"
    assert "head_rate=5" in Path(summary["record"]).name
    # Its head is personal: only the body travels, in each direction (1 of 4 clients, then all 4), and once
    # to each client the head at its start.
    head_floats = 330
    body_floats = 15_466 - head_floats
    assert summary["bytes_up"] == (1 + 4) * 4 * body_floats
    assert summary["bytes_down"] == summary["bytes_up"] + 4 * 4 * head_floats
    assert "fast-head" in printed["methods"]
    (group,) = json.loads(printed["compared"])
    assert {run["title"] for run in group["runs"]} == {"fast-head-head_rate=5.0", "fedper"}


def test_the_method_is_the_same_as_a_plugin(checkout, printed, tmp_path):
    place = checkout / "algorithms" / "fast_head.py"
    moved = Path(shutil.move(place, tmp_path))
    words = ["--plugin", str(moved), *COMMANDS["method"], "--results-dir", str(tmp_path)]
    try:
        plugin = json.loads(python(checkout, "-m", "benchmark", *words).splitlines()[-1])
    finally:
        shutil.move(moved, place)
    summary = json.loads(printed["method"].splitlines()[-1])
    for entry in ("accuracy", "bytes_up", "bytes_down", "samples"):
        assert plugin[entry] == summary[entry]
    assert Path(plugin["record"]).name == Path(summary["record"]).name


def test_the_partitioner_is_one_new_file_and_runs(checkout, printed):
    record = checkout / json.loads(printed["partitioner"].splitlines()[-1])["record"]
    assert record.name.startswith("fedavg-digits-power1.5-seed0-")
    about = json.loads((record / "config.json").read_text())
    assert (about["config"]["partition"], about["config"]["exponent"]) == ("power", 1.5)
    # Of 4 * 19 = 76 samples 1 : 2^-1.5 : 3^-1.5 : 4^-1.5, and one more each.
    assert about["split"]["train_samples"] == [1 + 5, 1 + 45]
    assert "--exponent 1.0" in printed["partitioners"]
    # Records of other partitioners are those that they are without it.
    (other,) = (checkout / "results" / "runs").glob("local-*")
    config = RunConfig.from_dict(json.loads((other / "config.json").read_text())["config"])
    assert other.name.endswith(f"-{config.hash}")


def test_the_shift_is_one_new_file_and_runs(checkout, printed):
    record = checkout / json.loads(printed["shift"].splitlines()[-1])["record"]
    assert "-feature-upside-down-0.5-seed0-" in record.name
    about = json.loads((record / "config.json").read_text())
    assert about["config"]["shift"] == "feature=upside-down:0.5"
    turned = about["split"]["shifts"]["feature=upside-down:0.5"]["upside_down"]
    assert len(turned) == 4
    assert "feature=upside-down:0.5" in printed["shifts"]


def test_the_network_is_one_new_file_and_runs(printed, tmp_path):
    summary = json.loads(printed["network"].splitlines()[-1])
    assert Path(summary["record"]).name.startswith("fedper-digits-small-net-s2-seed0-")
    # Of fedper the head is personal: convolution and its normalisation, and the first fully connected layer.
    floats = (9 * 16 + 16 + 2 * 16) + (64 * 32 + 32)
    assert summary["bytes_up"] == (1 + 4) * 4 * floats
    assert "small-net" in printed["networks"]
    (tmp_path / "small_net.py").write_text(EXAMPLES[3])
    words = ["--plugin", str(tmp_path / "small_net.py"), *COMMANDS["network"], "--results-dir", str(tmp_path)]
    plugin = json.loads(python(ROOT, "-m", "benchmark", *words).splitlines()[-1])
    assert plugin["accuracy"] == summary["accuracy"]
    assert Path(plugin["record"]).name == Path(summary["record"]).name


def test_the_launcher_is_one_new_file_and_runs_cells(checkout, printed):
    assert json.loads(printed["launcher"]) == ["a run"]
    assert len(list(checkout.glob("results/fresh/fedavg-*/done"))) == 1
    assert "--niceness N" in printed["flags"]


def test_the_dataset_is_one_new_file_and_can_be_learned(printed):
    about = json.loads(printed["data"].splitlines()[-1])
    assert (about["dataset"], about["train_samples"], about["network"]) == ("bars", 800, "cnn-digits")
    assert json.loads(printed["dataset"].splitlines()[-1])["accuracy"] > 0.7


def test_the_tracker_follows_a_run(checkout):
    python(checkout, "csv_tracker.py")
    (log,) = (checkout / "logs").glob("fedper-digits-s2-seed0-*.csv")
    lines = log.read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["round", "1", "2", "3", "4", "5"]


def test_the_format_of_tables_is_one_new_file(printed):
    assert printed["table"].splitlines()[:4] == [
        "#+CAPTION: Title. Caption.",
        "| method | accuracy |",
        "|--------+----------|",
        r"| a \vert{} b | 50.00 (40.00, +10.00) |",
    ]


def test_the_suite_takes_the_example_in(checkout):
    """All that is tested of every method and every partitioner, and what counts methods."""
    places = [
        "algorithms",
        "engine",
        "datasets/test_partitioners.py",
        "datasets/test_shifts.py",
        "cli/test_list_and_data.py",
        "studies/test_catalogue.py",
        "papers/ppfe/test_studies.py",
    ]
    chosen = "fast-head or power or exponent or upside"
    chosen += " or test_config or test_list or test_studies or test_catalogue"
    words = [*(f"tests/{place}" for place in places), "-k", chosen, "-v", "-p", "no:cacheprovider"]
    output = python(checkout, "-m", "pytest", *words)
    (passed,) = re.findall(r"(\d+) passed", output)
    assert int(passed) > 150
