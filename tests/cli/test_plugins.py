"""Methods, datasets, networks and settings from files and modules outside of the checkout."""

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TINY as FEDERATION

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.datasets.registry import DATASETS, MODULES
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.progress import RunProgress
from pfl_benchmark.launch.local import Processes
from pfl_benchmark.models import ARCHITECTURES, NETWORKS
from pfl_benchmark.records.sources import SOURCES
from pfl_benchmark.resolve import plugins
from pfl_benchmark.resolve.code import _digest, code_of
from pfl_benchmark.resolve.plugins import GROUP, INSTALLED, LOADED, VARIABLE, load_plugins
from pfl_benchmark.studies.grid import PlannedRun

ROOT = Path(__file__).parents[2]
REGISTRIES = (ALGORITHMS, ARCHITECTURES, DATASETS, MODULES, NETWORKS, SETTINGS, SOURCES, LOADED)
BEFORE = [dict(registry) for registry in REGISTRIES]

METHOD = """
from __future__ import annotations

from pfl_benchmark.algorithms import register
from pfl_benchmark.algorithms.fedper import FedPer

@register
class Own(FedPer):
    "FedPer under another name."

    name, title, reference = "own", "Own method", "a test"
"""

SETTING = """
from pfl_benchmark.config.settings import SETTINGS, Setting

SETTINGS["digits-own"] = Setting("Own setting", {**SETTINGS["digits-s2"].values, "rounds": 3})
"""

DATASET = """
import dataclasses

from pfl_benchmark.config.settings import SETTINGS, Setting
from pfl_benchmark.models import NETWORKS, cnn
from pfl_benchmark.datasets.api import DATASETS
from pfl_benchmark.datasets.registry import register

register(dataclasses.replace(DATASETS["digits"], name="own-digits", title="Own digits"), __name__)
NETWORKS["own-digits"] = cnn((1, 8, 8), 10, (4, 4), (8, 8), kernel=3, padding=1)
SETTINGS["own-digits"] = Setting("Own data", {**SETTINGS["digits-s2"].values, "dataset": "own-digits"})
"""

NETWORK = """
from torch import nn

from pfl_benchmark.models import network_from_module, register_network


class Own(nn.Sequential):
    def __init__(self, pixels, classes):
        super().__init__()
        self.flatten = nn.Flatten()
        self.hidden = nn.Linear(pixels, 8)
        self.tanh = nn.Tanh()
        self.fc = nn.Linear(8, classes)


@register_network("own-net", "Own network", "a test")
def own(shape, classes):
    pixels = shape[0] * shape[1] * shape[2]
    return network_from_module(lambda: Own(pixels, classes), SPLITS, shape)


SPLITS = ("hidden", "fc")
"""

KINDS = {
    "method": (METHOD, "list methods", "own", "--algo own --dataset digits"),
    "setting": (SETTING, "list settings", "digits-own", "--algo fedper --setting digits-own"),
    "network": (NETWORK, "list networks", "own-net", "--algo fedper --dataset digits --network own-net"),
    "dataset": (DATASET, "list datasets", "own-digits", "--algo fedper --dataset own-digits"),
}
SMALL = FEDERATION.replace("--dataset digits ", "")


def forget():
    """As a new process, in which no plugin is loaded."""
    for registry, old in zip(REGISTRIES, BEFORE, strict=True):
        registry.clear()
        registry.update(old)
    for name in [name for name in sys.modules if name.startswith(("plugin_", "outside"))]:
        del sys.modules[name]
    _digest.cache_clear()
    INSTALLED.clear()
    plugins._REFUSED.clear()
    plugins._entry_points.cache_clear()


@pytest.fixture(autouse=True)
def none_is_left(monkeypatch):
    """Nothing of a test's plugins is there for the next one."""
    monkeypatch.setenv(VARIABLE, "")
    yield
    forget()


@pytest.fixture
def plugin(tmp_path):
    """``plugin(METHOD)``: the path of a file with that text."""

    def write(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_plugin_registers_is_listed_runs_and_is_compared(kind, command, plugin, tmp_path):
    text, listing, name, flags = KINDS[kind]
    path, runs = plugin(text), str(tmp_path / "runs")
    assert name not in [entry["name"] for entry in command(listing, "--json").json[listing.split()[1]]]
    found = command(["--plugin", path], listing, "--json").json[listing.split()[1]]
    assert name in [entry["name"] for entry in found]
    words = (flags, SMALL, "--json", ["--results-dir", runs, f"--plugin={path}"])
    first = command("run", *words)
    assert (first.code, first.json["environment"]["plugins"]) == (0, "mine.py")
    assert "already finished" in command(*words).err
    assert command(*words, "--algo fedavg").code == 0
    assert command("compare", [runs, "--plugin", path], "--json").code == 0
    assert os.environ[VARIABLE] == path


@pytest.mark.parametrize("added", ["# a remark", "RATE = 1"])
def test_a_run_goes_on_and_says_whether_its_plugin_was_another(
    added, tiny_run, plugin, monkeypatch, checkpoint_always
):
    def interrupt(self, line):
        if line["round"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunProgress, "round", interrupt)
        assert tiny_run("--algo own", ["--plugin", plugin(METHOD)]).code == 130
    forget()
    resumed = tiny_run("--algo own", ["--plugin", plugin(f"{METHOD}\n{added}")])
    assert "resumes after round 2" in resumed.err
    assert ("rounds 1-2 were computed with other code" in resumed.out) == (added == "RATE = 1")


def test_a_plugin_of_the_environment_is_loaded_beside_those_given(command, plugin, monkeypatch):
    files = [plugin(METHOD), plugin(SETTING, "two.py"), plugin(DATASET, "three.py")]
    monkeypatch.setenv(VARIABLE, os.pathsep.join(files[:2]))
    found = command("list", "--json", ["--plugin", files[0], "--plugin", files[2]]).json
    for kind, name in (("methods", "own"), ("settings", "digits-own"), ("datasets", "own-digits")):
        assert [entry["name"] for entry in found[kind]].count(name) == 1
    assert os.environ[VARIABLE] == os.pathsep.join(files)


def test_a_module_is_a_plugin_too_and_what_it_imports_of_itself_counts(tmp_path, monkeypatch, tiny):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "__init__.py").write_text("from outside import method")
    (tmp_path / "outside" / "method.py").write_text(METHOD + "\nfrom outside import rates")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files of one second look alike to Python's cache
    codes = set()
    for rate in ("0.1", "0.1  # as before", "0.2"):
        forget()
        (tmp_path / "outside" / "rates.py").write_text(f"RATE = {rate}")
        importlib.invalidate_caches()
        load_plugins(["outside"])
        codes.add(code_of(tiny("own")))
    assert len(codes) == 2


@pytest.mark.parametrize("kind", ["method", "network", "dataset"])
def test_a_plugins_code_counts_for_runs_that_use_it(kind, tiny, plugin):
    uses = {
        "method": {"algo": "own"},
        "network": {"network": "own-net"},
        "dataset": {"dataset": "own-digits"},
    }
    text, words = KINDS[kind][0], uses[kind]
    other = code_of(tiny("fedper"))
    codes = set()
    for changed in (text, text + "\n# a remark", text + "\nx = 1"):
        forget()
        load_plugins([plugin(changed)])
        codes.add(code_of(tiny(**{"algo": "fedper", **words})))
        assert code_of(tiny("fedper")) == other
    assert len(codes) == 2
    assert other not in codes


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """``installed(METHOD)``: a package with that text in it, whose entry point is a module of it."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    def write(text):
        about = tmp_path / "site" / "outside_methods-1.0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-methods\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[{GROUP}]\nanything = outside.plugin\n")
        (tmp_path / "site" / "outside").mkdir()
        (tmp_path / "site" / "outside" / "__init__.py").touch()
        (tmp_path / "site" / "outside" / "plugin.py").write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        plugins._entry_points.cache_clear()

    return write


def test_an_installed_package_is_a_plugin_and_on_record_where_it_is_used(
    installed, command, tiny_run, tiny, tmp_path
):
    installed(METHOD)
    assert "own" in [entry["name"] for entry in command("list methods", "--json").json["methods"]]
    assert LOADED == {"outside.plugin": "outside.plugin"}
    made = {}
    for algo in ("own", "fedper"):
        record = json.loads(tiny_run(f"--algo {algo} --json").out.splitlines()[-1])
        made[algo] = record["environment"].get("plugins")
    assert made == {"own": "outside.plugin", "fedper": None}
    before = code_of(tiny("own"))
    forget()
    with (tmp_path / "site" / "outside" / "plugin.py").open("a") as file:
        file.write("\nRATE = 1\n")
    load_plugins()
    assert code_of(tiny("own")) != before


@pytest.mark.parametrize("kind", ["a fault", "nothing", "a method's name"])
def test_an_installed_package_that_cannot_be_loaded_is_left_out_and_said_once(kind, installed, command):
    installed(BAD[kind][0])
    answer = command("list methods")
    assert (answer.code, answer.err.count("\n")) == (0, 1)
    for part in (
        "outside-methods is left out",
        "outside.plugin",
        BAD[kind][1][0],
        "pip uninstall outside-methods",
    ):
        assert part in answer.err
    assert "fedper" in answer.out
    assert command("list methods").err == ""
    assert [dict(registry) for registry in REGISTRIES] == BEFORE
    asked_for = command("list methods", "--plugin outside.plugin")
    assert (asked_for.code, asked_for.err.count("\n")) == (2, 1)


def test_workers_load_plugins(plugin, tiny, tmp_path):
    load_plugins([plugin(METHOD + DATASET)])
    cell = PlannedRun(tiny("own", dataset="own-digits"), "a run", ())
    execution = Execution(device="cpu", executor="loop", results_dir=tmp_path / "runs")
    with Processes(1, execution) as launcher:
        outcome = launcher.run([cell], Silent())
    assert (outcome.done, outcome.failed) == ([cell], [])


class Silent:
    """A watcher of runs and rounds that does nothing."""

    def begin(self, cell):
        return self

    def __getattr__(self, name):
        return lambda *of: None


def test_the_studies_of_every_method_include_a_plugins(plugin):
    """In a process of its own, in which nothing is imported before."""
    words = ["tables", "--profile", "quick", "--only", "methods", "--dry-run", "--plugin", plugin(METHOD)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmark", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "own on digits-s2, seed 0" in done.stdout


def setting(**values):
    return SETTING.split("SETTINGS[")[0] + f"SETTINGS['odd'] = Setting('Odd', {values})"


IID = {"dataset": "digits", "partition": "iid"}
PLACES = {
    "ALGORITHMS": "algorithms",
    "NETWORKS": "pfl_benchmark.models",
    "ARCHITECTURES": "pfl_benchmark.models",
    "SETTINGS": "pfl_benchmark.config.settings",
    "register": "pfl_benchmark.datasets.registry",
}
LAW = """
from pfl_benchmark.datasets.partitioners import PARTITIONERS
from pfl_benchmark.datasets.partitioners.base import register

register(type("Own", (PARTITIONERS["iid"],), {"name": "own"}))
"""

# What follows an import of the registry of that name.
ODD = {name: f"from {place} import {name}\n{name}" for name, place in PLACES.items()}

BAD = {
    "not Python": ("def (", ["cannot be imported: SyntaxError", "line 1"]),
    "no text": ("\0", ["cannot be imported: SyntaxError"]),
    "a missing package": ("import nowhere_to_be_found", ["No module named 'nowhere_to_be_found' (line 1)"]),
    "a fault": ("\n1 / 0", ["cannot be imported: ZeroDivisionError", "(line 2)"]),
    "an exit": ("raise SystemExit(0)", ["cannot be imported: SystemExit"]),
    "nothing": ("x = 1", ["registers nothing", "expected a method"]),
    "a method's name": (METHOD.replace('"own"', '"fedavg"'), ["two methods are called 'fedavg'"]),
    "a method's title": (METHOD.replace('"Own method"', '"FedAvg"'), ["that of 'fedavg'"]),
    "an overwritten method": (METHOD + ODD["ALGORITHMS"] + "['fedavg'] = Own", ["method 'fedavg' already"]),
    "a dataset's name": (DATASET.replace('"own-digits"', '"digits"'), ["two datasets are called 'digits'"]),
    "no dataset": (f"{ODD['register']}(1, __name__)", ["cannot be imported: AttributeError"]),
    "a setting's name": (SETTING.replace("digits-own", "digits-s2"), ["setting 'digits-s2' already"]),
    "a network's name": (SETTING + ODD["NETWORKS"] + "['digits'] = None", ["network 'digits' already"]),
    "no network": (SETTING + ODD["NETWORKS"] + "['odd'] = 1", ["'odd' is of type int; expected a Network"]),
    "an architecture's name": (
        NETWORK.replace("own-net", "resnet8-gn"),
        ["two networks are called 'resnet8-gn'"],
    ),
    "no architecture": (
        ODD["ARCHITECTURES"] + "['odd'] = 1",
        ["'odd' is of type int; expected an Architecture"],
    ),
    "no setting": (ODD["SETTINGS"] + "['odd'] = 1", ["'odd' is of type int; expected a Setting"]),
    "half a setting": (setting(dataset="digits"), ["'odd' has no partition"]),
    "a setting's field": (setting(**IID, round=3), ["did you mean 'rounds'"]),
    "a setting's value": (setting(**IID, rounds=0), ["--rounds is 0"]),
    "a setting's dataset": (setting(**{**IID, "dataset": "digit"}), ["did you mean 'digits'"]),
    "a partitioner": (LAW, ["partitioner 'own'", "datasets/partitioners"]),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_plugins_are_one_line_and_leave_nothing(kind, command, plugin, tmp_path):
    text, parts = BAD[kind]
    path = plugin(text)
    words = ("--algo fedavg --dataset digits", SMALL, ["--results-dir", str(tmp_path / "runs")])
    for answer in (command(*words, ["--plugin", path]), command("list", ["--plugin", path])):
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
        for part in (f"error: plugin {path}: ", *parts):
            assert part in answer.err
    assert [dict(registry) for registry in REGISTRIES] == BEFORE
    assert {file.name for file in tmp_path.iterdir()} == {"mine.py"}
    assert os.environ[VARIABLE] == ""


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--plugin"], "expected a Python file or the name of a module"),
        (["--plugin="], "expected a Python file or the name of a module"),
        (["--plugin", "--json"], "expected a Python file or the name of a module"),
        (["--plugin", "nowhere.py"], "cannot be read (No such file or directory)"),
        (["--plugin", "tests/"], "it is a folder"),
        (["--plugin", f"{'x' * 5000}.py"], "cannot be read (File name too long)"),
        (["--plugin", "no\0thing.py"], "expected a path"),
        (["--plugin", "no_such_module"], "there is no such module"),
        (["--plugin", "json.no_such_module"], "there is no such module"),
        (["--plugin", "."], "it is a folder"),
        (["--plugin", "json"], "registers nothing"),
        (["--plugin", "algorithms/fedper.py"], "two methods are called 'fedper'"),
        (["--plugin", f"a{os.pathsep}b.py"], "separates plugins"),
        (["--plugins", "x.py"], "did you mean '--plugin'?"),
    ],
)
def test_bad_names_of_plugins(words, part, command):
    answer = command("list", [word.replace("algorithms/", f"{ROOT}/algorithms/") for word in words])
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert part in answer.err


def test_two_files_of_one_name(plugin, tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match=r"other/mine.py: another plugin has a file of that name; rename it"):
        load_plugins([plugin(METHOD), plugin(SETTING, "other/mine.py")])
    assert "own" in ALGORITHMS
    assert "plugin_mine" in sys.modules


def test_help_needs_no_plugin(command):
    for words in ("--help", "list --help"):
        answer = command(["--plugin", "nowhere.py"], words)
        assert (answer.code, answer.err) == (0, "")
        assert "--plugin FILE" in answer.out
