"""A configuration is resolved once; all that comes after takes the `Run`."""

import sys
from collections import Counter

import pytest

from pfl_benchmark import run
from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.cli import main
from pfl_benchmark.engine.hyper import parse_hyper
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.resolve.run import method_label, resolve, with_hyper

HOMES = {
    "resolve": "pfl_benchmark.resolve.run",
    "network_of": "pfl_benchmark.config.network",
    "parse_hyper": "pfl_benchmark.engine.hyper",
}
EACH_ONCE = {"resolve": 1, "network_of": 1, "parse_hyper": 1, "pick_executor": 1}


@pytest.fixture
def calls(monkeypatch):
    """How often each was called, under whatever name a module has imported it."""
    found = Counter()

    def counted(function):
        def call(*args, **kwargs):
            found[function.__name__] += 1
            return function(*args, **kwargs)

        return call

    for name, home in HOMES.items():
        function = getattr(sys.modules[home], name)
        for module in [module for key, module in sys.modules.items() if key.startswith("pfl_benchmark.")]:
            if vars(module).get(name) is function:
                monkeypatch.setattr(module, name, counted(function))
    monkeypatch.setattr(Execution, "pick_executor", counted(Execution.pick_executor))
    return found


@pytest.mark.parametrize("algo", ["ditto", "fedbn", "lg-fedavg"])
def test_one_run_from_python_resolves_once(algo, calls, tmp_path):
    hyper = {"lam": 0.5} if algo == "ditto" else {}
    record = run(algo, dataset="digits", rounds=2, hyper=hyper, progress=False, results_dir=tmp_path)
    assert len(record.rounds) == 2
    assert calls == EACH_ONCE


def test_one_run_by_the_command_line_resolves_once(calls, tmp_path):
    words = "--algo ditto --set lam=0.5 --dataset digits --rounds 2 --device cpu --results-dir"
    assert main([*words.split(), str(tmp_path)]) == 0
    assert calls == EACH_ONCE


def test_labels_of_runs_are_those_of_their_configurations(algo, tiny):
    for ablation in (None, *ALGORITHMS[algo].ablations):
        config = with_hyper(tiny(algo), {}, ablation)
        label = resolve(config).label
        assert label == method_label(config) == (f"{algo}-{ablation}" if ablation else algo)


# Hyper-parameters as Python has them


@pytest.mark.parametrize(
    ("algo", "typed", "value"),
    [
        ("ditto", {"lam": "0.5"}, {"lam": 0.5}),
        ("ditto", {"lam": "1"}, {"lam": 1}),
        ("fedper", {"n_personal": "2"}, {"n_personal": 2}),
        ("ppfe", {"stage_rounds": "1,1,1,1"}, {"stage_rounds": (1, 1, 1, 1)}),
        ("ppfe", {"stage_rounds": "1,1,1,1"}, {"stage_rounds": [1, 1, 1, 1]}),
        ("ppfe", {"reduction": "none"}, {"reduction": "none"}),
    ],
)
def test_python_values_mean_what_typed_ones_do(algo, typed, value):
    hyper = ALGORITHMS[algo].Hyper
    assert repr(parse_hyper(hyper, value, algo)) == repr(parse_hyper(hyper, typed, algo))


@pytest.mark.parametrize(
    ("algo", "given"),
    [
        ("ditto", {"lam": True}),
        ("ditto", {"lam": None}),
        ("ditto", {"lam": float("nan")}),
        ("ditto", {"lam": 10**400}),
        ("ditto", {"lam": -1.0}),
        ("fedper", {"n_personal": 1.0}),
        ("fedper", {"n_personal": True}),
        ("ppfe", {"stage_rounds": {1: 1}}),
        ("ppfe", {"stage_rounds": 4}),
        ("ppfe", {"reduction": "nothing"}),
    ],
)
def test_python_values_are_held_to_the_same_rules(algo, given):
    with pytest.raises(UserError, match=f"{next(iter(given))}="):
        parse_hyper(ALGORITHMS[algo].Hyper, given, algo)
