"""The wheel in an environment of its own, beside Hugging Face's `datasets`, used from an empty folder."""

import csv
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_runs import FLAGS, SMALL

import pfl_benchmark
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.resolve.code import code_of
from pfl_benchmark.resolve.plugins import GROUP

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("benchmark", "algorithms", "datasets")


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def is_recent(package, least):
    return [int(part) for part in re.findall(r"\d+", version_of(package))[: len(least)]] >= least


pytestmark = pytest.mark.skipif(
    not (is_recent("pip", [22, 3]) and is_recent("setuptools", [77])),
    reason="needs pip 22.3 and setuptools 77 or later, which build and install the wheel",
)

METHOD = """
from pfl_benchmark.algorithms import register
from pfl_benchmark.algorithms.fedper import FedPer

@register
class Own(FedPer):
    "FedPer under another name."

    name, title, reference = "{name}", "{name}", "a test"
"""
PROJECT = f"""
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "outside-methods"
version = "1.0"

[project.entry-points."{GROUP}"]
outside = "outside_methods"

[tool.setuptools]
py-modules = ["outside_methods"]
"""


def carry_out(*words, cwd, **variables):
    """Run a program that succeeds; no variable of ours reaches it but those of the system."""
    kept = ("PATH", "LANG", "LD_LIBRARY_PATH", "SYSTEMROOT")
    environment = {name: os.environ[name] for name in kept if name in os.environ} | variables
    environment |= {"HOME": str(cwd), "XDG_CACHE_HOME": str(cwd / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done


OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet")


def pip(*words, cwd):
    carry_out(sys.executable, "-m", "pip", *words, *OFFLINE, cwd=cwd)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel of the checkout, and that of its source distribution."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    for name in ("pfl_benchmark", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CITATION.cff"):
        shutil.copy(ROOT / name, source, follow_symlinks=False)
    program = f"from setuptools.build_meta import build_sdist; build_sdist({str(folder)!r})"
    carry_out(sys.executable, "-c", program, cwd=source)
    (archive,) = folder.glob("*.tar.gz")
    for place, of in (("wheel", source), ("again", archive)):
        pip("wheel", "--wheel-dir", str(folder / place), str(of), cwd=folder)
    (wheel,), (again,) = (folder / "wheel").iterdir(), (folder / "again").iterdir()
    return SimpleNamespace(wheel=wheel, again=again)


def content(wheel):
    """Check sums of files by their names; RECORD lists the others in the order of the folder."""
    with zipfile.ZipFile(wheel) as archive:
        found = {entry.filename: entry.CRC for entry in archive.infolist()}
        assert len(found) == len(archive.infolist())
    return {name: crc for name, crc in found.items() if not name.endswith("/RECORD")}


def test_the_wheel_has_every_file_once_and_nothing_else(built):
    tracked = {
        path.relative_to(ROOT).as_posix()
        for name in FOLDERS
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    expected = {f"pfl_benchmark/{name.removeprefix('benchmark/')}" for name in tracked}
    found = content(built.wheel)
    assert {name for name in found if ".dist-info/" not in name} == expected
    assert found == content(built.again)


def test_what_the_metadata_say(built):
    with zipfile.ZipFile(built.wheel) as archive:
        (folder,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        head = archive.read(f"{folder}/METADATA").decode().split("\n\n")[0].splitlines()
        assert f"{folder}/licenses/LICENSE" in archive.namelist()
        listed = csv.reader(io.StringIO(archive.read(f"{folder}/RECORD").decode()))
        assert {row[0] for row in listed} == set(archive.namelist())
    assert {f"Version: {pfl_benchmark.__version__}", "License-Expression: Apache-2.0"} <= set(head)
    assert not [line for line in head if "http" in line or line.startswith("Classifier: License")]


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """``installed("pfl-benchmark", "--help")``: the answer of a program of an environment with the wheel.

    It has the wheel, a package with a plug-in, `datasets`, and sees what the interpreter of the tests has.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv")
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    variables = {"base": str(folder / "venv"), "platbase": str(folder / "venv")}
    site = Path(sysconfig.get_path("purelib", "venv", variables))
    packages = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    (site / "beside.pth").write_text("\n".join(packages))
    if not version_of("datasets"):
        warnings.warn(
            "no datasets of Hugging Face here: an empty package of that name stands for it", stacklevel=1
        )
        (site / "datasets").mkdir()
        (site / "datasets" / "__init__.py").write_text("class Dataset: pass\n")
        (site / "datasets" / "arrow_dataset.py").touch()
    (folder / "plugin").mkdir()
    (folder / "plugin" / "pyproject.toml").write_text(PROJECT)
    (folder / "plugin" / "outside_methods.py").write_text(METHOD.format(name="packaged"))
    to = ("--python", str(programs / "python"), "install")
    pip(*to, str(built.wheel), str(folder / "plugin"), cwd=folder)

    def answer(program, *words, **options):
        return carry_out(str(programs / program), *words, **options)

    return answer


@pytest.fixture
def empty(tmp_path):
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def run(installed, folder, *words):
    """The summary of a run by the console script; its record lies below the present folder."""
    done = installed("pfl-benchmark", *words, *FLAGS, "--executor", "loop", "--json", cwd=folder)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert Path(summary["record"]).parent == Path("results", "runs")
    assert (folder / summary["record"] / "done").exists()
    assert {path.name for path in folder.iterdir()} <= {"results", "cache", "own.py"}
    return summary


def test_a_method_runs_as_in_the_checkout(installed, empty, launch):
    summary = run(installed, empty, "--algo", "fedper")
    there, environment = empty / summary["record"], summary["environment"]
    config = RunConfig.from_dict(json.loads((there / "config.json").read_text())["config"])
    assert (environment["code"], environment["commit"]) == (code_of(config), "")
    assert "plugins" not in environment  # although one is installed
    here = launch(config, empty / "here", executor=environment["executor"])
    assert here.content() == type(here)(there, {}).content()


def test_a_plugin_file_runs(installed, empty):
    (empty / "own.py").write_text(METHOD.format(name="own"))
    summary = run(installed, empty, "--plugin", "own.py", "--algo", "own")
    assert summary["environment"]["plugins"] == "own.py"


def test_hints_name_the_console_script(installed, empty):
    shown = installed("pfl-benchmark", "run", "--help", cwd=empty).stdout
    assert "usage: pfl-benchmark [run]" in shown
    assert "python -m benchmark" not in shown


NOTEBOOK = """
import json, linecache, sys
for number, cell in enumerate(json.loads(sys.argv[1])):
    file = f"<cell {number}>"
    linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
    exec(compile(cell, file, "exec"), vars(sys.modules["__main__"]))
"""
RUN = f"""
from pathlib import Path
record = run(METHOD, **{SMALL}, executor="loop", progress=False)
assert record.config.algo == NAME
assert record.summary["environment"].get("plugins") == PLUGINS
assert record.folder.parent == Path("results", "runs").absolute(), record.folder
"""
TWO_NAMES = """
import pfl_benchmark.datasets.api
assert datasets.Dataset and "digits" in pfl_benchmark.datasets.api.DATASETS
assert "benchmark" not in sys.modules
"""
HUGGING_FACE = "import datasets, datasets.arrow_dataset"


@pytest.mark.parametrize(
    ("order", "own"),
    [
        ("before", "METHOD, NAME, PLUGINS = NotebookHead, 'notebook-head', None"),
        ("after", "METHOD, NAME, PLUGINS = 'packaged', 'packaged', 'outside_methods'"),
    ],
)
def test_a_notebook_beside_hugging_faces_datasets(order, own, installed, empty):
    """It runs a method of its own, or that of an installed package."""
    notebook = json.loads((ROOT / "examples" / "own_method.ipynb").read_text(encoding="utf-8"))
    first, method, *_ = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    cells = [first, method, own, RUN, TWO_NAMES]
    cells.insert(0 if order == "before" else 4, HUGGING_FACE)
    installed("python", "-c", NOTEBOOK, json.dumps(cells), cwd=empty, MPLBACKEND="Agg")


@pytest.mark.parametrize("order", ["before", "after"])
def test_hugging_faces_datasets_with_the_checkout_on_the_path(order, installed, empty):
    cells = ["import sys", "import pfl_benchmark.datasets.api", TWO_NAMES]
    cells.insert(1 if order == "before" else 2, HUGGING_FACE)
    cells += [f"assert pfl_benchmark.__file__.startswith({str(ROOT)!r}), pfl_benchmark.__file__"]
    cells += [f"assert not datasets.__file__.startswith({str(ROOT / 'datasets')!r})"]
    installed("python", "-c", "\n".join(cells), cwd=empty, PYTHONPATH=str(ROOT))
