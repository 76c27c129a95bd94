"""`verify` of bundles: which records are run again, where the verdicts go, and whose code runs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from answers import refused
from record_folders import amend

from pfl_benchmark.cli import main
from pfl_benchmark.records.sources import SOURCES
from pfl_benchmark.resolve.plugins import LOADED, VARIABLE

PLUGIN = """
from pathlib import Path

from pfl_benchmark.algorithms import ALGORITHMS, register
from pfl_benchmark.algorithms.fedper import FedPer

Path({marker!r}).write_text("it ran")


@register
class Own(FedPer):
    "FedPer under another name."

    name, title, reference = "own-of-pack", "Own method", "a test"
"""


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """A command's exit code, output and error stream; nothing may be left in the temporary folder."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))

    def go(*words):
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as error:
            code = error.code
        assert not list(scratch.iterdir())
        return code, *capsys.readouterr()

    return go


@pytest.fixture
def runs(unbroken, tmp_path):
    root = tmp_path / "runs"
    for algo in ("fedper", "ditto", "ppfe"):
        shutil.copytree(unbroken(algo).folder, root / unbroken(algo).folder.name)
    return root


@pytest.fixture
def bundle(runs, run, tmp_path):
    assert run("pack", runs, "--out", tmp_path / "some.zip")[0] == 0
    return tmp_path / "some.zip"


def verdicts(bundle):
    return json.loads(bundle.with_name(f"{bundle.name}.verified.json").read_text())["records"]


def test_a_bundle_verifies_bit_for_bit_and_says_by_whom(run, bundle, runs):
    shutil.rmtree(runs)
    before = bundle.read_bytes()
    code, out, _ = run("verify", bundle, "--all", "--by", "A. Smith")
    assert (code, out.count("bit-equal")) == (0, 3)
    assert bundle.read_bytes() == before
    assert {verdict["verdict"] for verdict in verdicts(bundle).values()} == {"bit-equal"}
    assert {verdict["by"] for verdict in verdicts(bundle).values()} == {"A. Smith"}


def test_a_figure_that_was_changed_with_all_checksums_is_found(run, runs, tmp_path):
    folder = next(runs.glob("fedper-*"))
    amend(folder / "rounds.jsonl", lambda lines: lines[1].update(loss=lines[1]["loss"] + 0.01))
    assert run("pack", runs, "--out", tmp_path / "some.zip")[0] == 0
    code, out, _ = run("verify", tmp_path / "some.zip", "--rounds", 2)
    assert code == 1
    assert f"different         {folder.name}" in out
    assert verdicts(tmp_path / "some.zip")[folder.name]["verdict"] == "different"


def test_samples_are_drawn_and_verdicts_add_up(run, bundle):
    code, out, err = run("verify", bundle, "--sample", 1, "--rounds", 1)
    assert (code, out.count("bit-equal"), len(verdicts(bundle))) == (0, 1, 1)
    assert "drawn at random: 1 of 3 records" in err
    assert run("verify", bundle, "--sample", 99, "--rounds", 1)[0] == 0
    assert len(verdicts(bundle)) == 3


def test_folders_are_sampled_as_well(run, runs):
    code, out, _ = run("verify", runs, "--sample", 2, "--rounds", 1)
    assert (code, out.count("bit-equal"), len(list(runs.glob("*/verified.json")))) == (0, 2, 2)


@pytest.fixture
def foreign(run, runs, tmp_path, tiny, launch):
    """A bundle of a fedper run and of one of a plugin's method, which writes a file whenever it is run."""
    from pfl_benchmark.algorithms import ALGORITHMS

    before = [(registry, dict(registry)) for registry in (ALGORITHMS, SOURCES, LOADED)]

    def forget():
        for registry, old in before:
            registry.clear()
            registry.update(old)
        os.environ.pop(VARIABLE, None)

    marker, plugin = tmp_path / "marker", tmp_path / "mine.py"
    plugin.write_text(PLUGIN.format(marker=str(marker)))
    root = tmp_path / "mixed"
    folder = shutil.copytree(next(runs.glob("fedper-*")), root / next(runs.glob("fedper-*")).name)
    try:
        from pfl_benchmark.resolve.plugins import load_plugins

        load_plugins([str(plugin)])
        launch(tiny("own-of-pack"), root)
        assert run("pack", root, "--out", tmp_path / "foreign.zip")[0] == 0
        forget()
        marker.unlink()
        plugin.unlink()
        yield tmp_path / "foreign.zip", marker, folder.name
    finally:
        forget()


def test_a_strangers_code_runs_only_if_it_is_trusted(run, foreign):
    bundle, marker, plain = foreign
    code, out, err = run("verify", bundle, "--rounds", 1)
    assert (code, out.count("bit-equal"), marker.exists()) == (0, 1, False)
    assert plain in out
    assert "not run: plugins/mine.py" in err
    assert "left out: 1 made with plugins of the bundle" in err
    assert run("board", bundle, "--out", bundle.with_name("board.html"))[0] == 0
    assert not marker.exists()
    code, out, err = run("verify", bundle, "--rounds", 1, "--trust-plugins")
    assert (code, out.count("bit-equal"), marker.exists()) == (0, 2, True)
    assert "runs: plugins/mine.py" in err


def test_a_plugin_that_is_loaded_already_is_not_loaded_twice(run, foreign, tmp_path):
    bundle, marker, _ = foreign
    (same := tmp_path / "elsewhere" / "mine.py").parent.mkdir()
    same.write_text(PLUGIN.format(marker=str(marker)))
    code, out, _ = run("verify", bundle, "--rounds", 1, "--trust-plugins", "--plugin", same)
    assert (code, out.count("bit-equal")) == (0, 2)


def test_another_plugin_of_that_name_is_refused(run, foreign, tmp_path):
    bundle, marker, _ = foreign
    (other := tmp_path / "elsewhere" / "mine.py").parent.mkdir()
    other.write_text(PLUGIN.format(marker=str(marker)) + "\n# mine\n")
    code, _, err = run("verify", bundle, "--rounds", 1, "--trust-plugins", "--plugin", other)
    assert code == 2
    assert "drop one of the two flags" in err


def test_a_plugin_of_ones_own_in_place_of_the_bundles_is_said(run, foreign, tmp_path):
    bundle, marker, _ = foreign
    other = tmp_path / "elsewhere" / "mine.py"
    other.parent.mkdir()
    other.write_text(PLUGIN.format(marker=str(marker)) + "\n# mine\n")
    _, out, err = run("verify", bundle, "--rounds", 1, "--plugin", other)
    assert out.count("own-of-pack") == 1
    assert "warning: mine.py of --plugin is another file than the bundle's" in err


def test_a_record_of_an_unknown_method_is_left_out_of_several(run, foreign, tmp_path):
    plain = foreign[2]
    code, out, err = run("verify", tmp_path / "mixed", "--rounds", 1)
    assert (code, out.count("bit-equal"), plain in out) == (0, 1, True)
    assert "left out: 1 of methods that are not here (own-of-pack); give --plugin FILE.py" in err


EXIT = """
import sys

from pfl_benchmark.method import Algorithm, register


@register
class Exits(Algorithm):
    "Ends the program."

    name, title, reference = "exits", "Exits", "a test"

    def {hook}:
        sys.exit({code})
"""


@pytest.mark.parametrize("hook", ["phases(self, round)", "aggregate(self, mean)", "members(self, clients)"])
@pytest.mark.parametrize("code", ["", "0", "3"])
def test_an_exit_in_a_hook_is_an_error(hook, code, tmp_path):
    (tmp_path / "exits.py").write_text(EXIT.format(hook=hook, code=code))
    short = "--algo exits --dataset digits --clients 4 --samples-per-client 10 --rounds 2"
    short += " --test-samples-per-client 5"
    words = [sys.executable, "-m", "pfl_benchmark", *short.split(), "--plugin", "exits.py", "--device", "cpu"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 2
    assert "'exits' has called sys.exit(" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("{bundle}", "{runs}"), ("one bundle at a time",)),
        (("{runs}", "--trust-plugins"), ("is for bundles",)),
        (("{tmp}/nowhere.zip",), ("nowhere.zip cannot be read",)),
        (("{bundle}", "--sample", "0"), ("--sample",)),
        (("{bundle}", "--by", " "), ("--by",)),
        (("{bundle}", "--rounds", "99"), ("--rounds is 99",)),
    ],
)
def test_bad_input(words, parts, run, bundle, runs, tmp_path):
    refused(run("verify", *(w.format(bundle=bundle, runs=runs, tmp=tmp_path) for w in words)), *parts)
    assert not bundle.with_name("some.zip.verified.json").exists()
    assert not list(runs.glob("*/verified.json"))
