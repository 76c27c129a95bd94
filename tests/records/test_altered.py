"""What a plugin replaces in the code that computes rounds is seen, said, and other code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pfl_benchmark.algorithms.ditto import Ditto
from pfl_benchmark.algorithms.fedper import FedPer
from pfl_benchmark.config.loaded import LOADED
from pfl_benchmark.engine import calibration, message, rounds, sgd, update
from pfl_benchmark.records.altered import altered
from pfl_benchmark.resolve.code import code_of

ROOT = Path(__file__).parents[2]

CHANGES = {
    "a method": (message.WeightedMean, "value", lambda self: {}, "engine.message.WeightedMean.value"),
    "a function": (sgd, "forward", lambda *_: None, "engine.sgd.forward"),
    "an imported function": (rounds, "evaluate", lambda *_: None, "engine.rounds.evaluate"),
    "a constant": (calibration, "BINS", 4, "engine.calibration.BINS"),
    "an attribute of a base": (Ditto, "averages", False, "algorithms.ditto.Ditto.averages"),
    "a method of a base": (FedPer, "aggregate", lambda *_: None, "algorithms.fedper.FedPer.aggregate"),
    "a property": (update.Update, "descend", property(lambda self: 1), "engine.update.Update.descend"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_replacement_is_named(kind, monkeypatch):
    assert altered() == {}
    owner, name, value, told = CHANGES[kind]
    monkeypatch.setattr(owner, name, value, raising=False)
    assert [*altered()] == [told]


@pytest.mark.parametrize("kind", CHANGES)
def test_it_counts_as_other_code(kind, tiny, monkeypatch):
    monkeypatch.setitem(LOADED, "own.py", "own")
    owner, name, value, _ = CHANGES[kind]
    before = code_of(tiny("ditto"))
    monkeypatch.setattr(owner, name, value, raising=False)
    assert code_of(tiny("ditto")) != before


def test_replacements_differ_by_what_they_do_not_by_where_they_stand(tiny, monkeypatch):
    monkeypatch.setitem(LOADED, "own.py", "own")

    def under(source):
        monkeypatch.setattr(rounds, "evaluate", eval(source))
        return code_of(tiny("fedavg"))

    assert under("lambda x: 0.9 * x") == under("lambda x: 0.9 * x") != under("lambda x: 0.8 * x")
    assert under("lambda x: [0.9 for _ in x]") == under("lambda x: [0.9 for _ in x]")


PLUGIN = """
from pfl_benchmark.config.settings import SETTINGS, Setting
from pfl_benchmark.engine.message import WeightedMean

SETTINGS["digits-own"] = Setting("Own setting", {**SETTINGS["digits-s2"].values, "rounds": 2, "clients": 4})
mean = WeightedMean.value
WeightedMean.value = lambda self: {name: 0.9 * tensor for name, tensor in mean(self).items()}
"""


def test_fedavg_under_a_plugin_that_changes_the_mean_is_other_code(tmp_path):
    def call(*words):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        line = [sys.executable, "-m", "pfl_benchmark", *words]
        return subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, env=environment)

    (tmp_path / "own.py").write_text(PLUGIN)
    short = [
        "--setting",
        "digits-own",
        "--algo",
        "fedavg",
        "--device",
        "cpu",
        "--local-epochs",
        "1",
        "--json",
        "--plugin",
        "own.py",
    ]
    done = call(*short, "--results-dir", "runs")
    assert done.returncode == 0, done.stderr
    told = "not as in this package's files: engine.message.WeightedMean.value"
    assert told in done.stderr
    record = json.loads(done.stdout.splitlines()[-1])["record"]
    verified = call("verify", record)
    assert verified.returncode == 1
    assert told not in verified.stderr
    again = call("verify", record, "--plugin", "own.py")
    assert (again.returncode, "bit-equal" in again.stdout) == (0, True), again.stderr
    assert told in again.stderr
