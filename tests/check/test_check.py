"""``check``: every method fulfils what every method must; methods that do not are told so in a line."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.check.invariants import CHECKS, Case
from pfl_benchmark.check.report import check_method
from pfl_benchmark.cli import main
from pfl_benchmark.method import Algorithm, Message

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """The case of a method, whose plain run is made once."""
    made = {}

    def of(algo):
        return made.setdefault(algo, Case(algo, tmp_path_factory.mktemp(algo)))

    return of


# What other tests do not ask of every method already (test_resume, test_stacked, test_budget, test_text).
@pytest.mark.parametrize("check", ["hooks", "ledger", "chunks"])
def test_every_method_passes(check, algo, case):
    CHECKS[check](case(algo))


@pytest.mark.parametrize("algo", ["fedper", "ppfe"])
@pytest.mark.parametrize("check", CHECKS)
def test_every_check_can_be_passed(check, algo, case):
    CHECKS[check](case(algo))


@pytest.fixture
def example(monkeypatch):
    """Registers a worked example for the time of a test."""
    known = dict(ALGORITHMS)

    def load(name):
        path = EXAMPLES / f"{name}.py"
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, path.stem, module)
        spec.loader.exec_module(module)

    yield load
    ALGORITHMS.clear()
    ALGORITHMS.update(known)


@pytest.mark.parametrize("name", ["fednova", "fedntd"])
def test_worked_examples_pass(name, example):
    example(name)
    assert [result for result in check_method(name) if not result.passed] == []


SHORT = {
    "ensemble": "two-voices",
    "hypernetwork": "generated",
    "prototypes": "pulled",
    "server_step": "slow-server",
    "similarity": "nearest",
}


def test_a_short_example_for_each_kind_of_method():
    files = sorted((EXAMPLES / "short").glob("*.py"))
    assert [file.stem for file in files] == [*SHORT]
    for file in files:
        text = file.read_text()
        assert len(text.splitlines()) <= 60
        assert set(re.findall(r"(?:from|import) (pfl_benchmark\S*)", text)) == {"pfl_benchmark.method"}


@pytest.mark.parametrize("check", ["hooks", "ledger", "resume", "chunks"])
@pytest.mark.parametrize("name", SHORT)
def test_short_examples_pass(name, check, example, tmp_path):
    example(f"short/{name}")
    CHECKS[check](Case(SHORT[name], tmp_path))


class Mistaken(Algorithm):
    """A method with a mistake."""

    name = "mistaken"
    title = "Mistaken"
    reference = "a test"


def mean_over_clients(self, outcome):
    return {name: tensor.mean(0, keepdim=True) for name, tensor in outcome.models["model"].items()}


def in_place(self, outcome):
    model = outcome.models["model"]
    for tensor in model.values():
        tensor.mul_(0.5)
    return model


def on_the_server(self, clients, message, round):
    for tensor in self.server.values():
        tensor.add_(1)
    return Algorithm.begin(self, clients, message, round)


def more_in_later_rounds(self, clients, round):
    return Message({**self.server, **({"more": self.server["fc1.bias"]} if round == 5 else {})})


@pytest.mark.parametrize(
    ("hook", "value", "check", "problem"),
    [
        ("upload", mean_over_clients, "hooks", r"`upload` gives 'conv1.weight' of shape (1, "),
        ("upload", in_place, "hooks", "`upload` changes the model in place"),
        ("begin", on_the_server, "hooks", "`begin` changes the server in place"),
        ("message", more_in_later_rounds, "ledger", "round 5: bytes_down is"),
        ("message", lambda self, clients, round: self.server, "hooks", "expected a Message"),
        ("upload", lambda self, outcome: [1], "hooks", "expected a dictionary of tensors by name"),
        ("kind", lambda self, round: 0, "hooks", "`kind` gives 0; expected a RoundKind"),
        ("diagnostics", lambda self: {"a": {1}}, "hooks", "`diagnostics` gives"),
        ("notes", "one line", "hooks", "`notes` is 'one line'; expected a list of lines"),
        ("aggregation", "sampels", "hooks", "`aggregation` is 'sampels'; expected uniform or samples"),
        ("phases", lambda self, round: sys.exit(), "ledger", "has called sys.exit(None) before the end"),
        ("upload", lambda self, outcome: sys.exit(), "executors", "has called sys.exit(None) before the end"),
        ("state", lambda self: {}, "resume", "its checkpoint cannot be used"),
    ],
)
def test_mistakes_are_found(hook, value, check, problem, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(ALGORITHMS, "mistaken", Mistaken)
    monkeypatch.setattr(Mistaken, hook, value, raising=False)
    with pytest.raises(SystemExit) as stop:
        main(["check", "--algo", "mistaken", "--only", check, "--json"])
    assert stop.value.code == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert not found["passed"]
    assert problem in found["found"]
    assert "\n" not in found["found"]


def test_the_table_names_every_check(capsys):
    assert main(["check", "--algo", "local", "--only", "hooks", "ledger"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["hooks", "passed"],
        ["ledger", "passed"],
    ]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--algo", "fedpr"], "did you mean 'fedper'"),
        (["--algo", "fedper", "--only", "ledgr"], "did you mean 'ledger'"),
        (["--algo", "fedper", "--ablation", "x"], "has no ablations"),
    ],
)
def test_bad_input_is_one_line(words, problem, capsys):
    assert main(["check", *words]) == 2
    assert problem in capsys.readouterr().err
