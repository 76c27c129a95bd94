"""What is advised where training diverges: the method's own settings, where they are the likely cause."""

import dataclasses

import pytest

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.engine.algorithm import smaller
from pfl_benchmark.engine.rounds import Diverged

SETTINGS = {
    "fedadam": "server_rate", "fedavgm": "server_rate", "scaffold": "global_rate", "fedprox": "mu",
    "moon": "mu", "gpfl": "lam", "fedproto": "lam", "fedpac": "lam", "per-fedavg": "alpha",
    "phn": "hyper_rate", "ditto": "lam", "feddyn": "alpha", "pfedme": "personal_rate", "fedamp": "lam",
    "feddbe": "kappa", "fedas": "align_rate",
}  # fmt: skip


@pytest.mark.parametrize(("algo", "name"), SETTINGS.items())
def test_what_was_raised_comes_first_and_what_is_off_is_not_named(algo, name):
    method = ALGORITHMS[algo]
    own, rate = f"a smaller --set {name}", "a smaller --lr"
    found = smaller(method, method.Hyper(**{name: 1e5}))
    assert found[0] == own
    assert rate in found
    found = smaller(method, method.Hyper())
    assert found[0] == rate
    assert own in found
    assert own not in smaller(method, method.Hyper(**{name: 0.0}))


@pytest.mark.parametrize("algo", ["fedavg-ft", "fedbabu"])
def test_a_rate_of_fine_tuning_is_named_where_there_is_one(algo):
    method = ALGORITHMS[algo]
    assert smaller(method, method.Hyper()) == ["a smaller --lr"]
    assert smaller(method, method.Hyper(ft_lr=1e5)) == ["a smaller --set ft_lr", "a smaller --lr"]


@pytest.mark.parametrize("method", ALGORITHMS.values(), ids=lambda method: method.name)
def test_settings_that_are_named_exist(method):
    assert {*method.too_large} <= {spec.name for spec in dataclasses.fields(method.Hyper)}


@pytest.mark.parametrize(
    ("algo", "name", "value"),
    [("fedadam", "server_rate", 1e30), ("scaffold", "global_rate", 1e30), ("fedprox", "mu", 1e9)],
)
def test_the_message_names_it(algo, name, value, tiny, launch, tmp_path):
    with pytest.raises(Diverged, match=f"try a smaller --set {name} or a smaller --lr"):
        launch(tiny(algo, {name: value}), tmp_path)
