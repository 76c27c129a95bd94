"""The registry: whatever registers itself is complete."""

import dataclasses
import importlib
import pkgutil

import pytest

from pfl_benchmark import algorithms
from pfl_benchmark.algorithms import ALGORITHMS, find, register
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.hyper import parse_hyper
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.card import GROUPS
from pfl_benchmark.models import build_network
from pfl_benchmark.resolve.run import method_label

BASELINES = {"local", "fedavg", "fedavg-ft", "ditto", "fedbabu", "fedrep", "fedper", "lg-fedavg"}


def test_the_baselines_are_there():
    assert set(ALGORITHMS) >= BASELINES


def test_every_module_of_the_package_is_loaded():
    for module in pkgutil.iter_modules(algorithms.__path__):
        loaded = importlib.import_module(f"pfl_benchmark.algorithms.{module.name}")
        for value in vars(loaded).values():
            if isinstance(value, type) and issubclass(value, Algorithm) and "name" in vars(value):
                assert ALGORITHMS[value.name] is value


def test_a_method_says_what_it_is(algo):
    method = find(algo)
    assert method.name == algo
    assert algo == algo.lower()
    assert method.title
    assert method.reference
    assert method.__doc__
    assert method.group in GROUPS
    assert len(method.pseudocode) in (0, 2, 3)
    assert [name for name, other in ALGORITHMS.items() if other.title == method.title] == [algo]


def test_hyper_parameters_are_documented_and_have_defaults(algo):
    hyper = find(algo).Hyper
    defaults = hyper()
    for spec in dataclasses.fields(hyper):
        assert spec.metadata["doc"], spec.name
    # What is typed in a list of options can be typed back.
    typed = {
        spec.name: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for spec in dataclasses.fields(hyper)
        for value in [getattr(defaults, spec.name)]
    }
    assert parse_hyper(hyper, typed, algo) == defaults
    assert parse_hyper(hyper, dataclasses.asdict(defaults), algo) == defaults


def test_hyper_parameters_do_not_hide_protocol(algo):
    """A hyper-parameter with the name of a run's field could not be told from its flag."""
    from pfl_benchmark.config.run_config import RunConfig

    protocol = {spec.name for spec in dataclasses.fields(RunConfig)}
    protocol -= {"nesterov"} if algo == "fedavgm" else {*()}  # the server's, which was there first
    assert not protocol & {spec.name for spec in dataclasses.fields(find(algo).Hyper)}


def test_ablations_are_valid_and_named_in_the_label(algo, tiny):
    method = find(algo)
    assert method_label(tiny(algo)) == algo
    network = build_network("digits")
    for name, values in method.ablations.items():
        config = tiny(algo, dict(values))
        method.check(config, network, parse_hyper(method.Hyper, config.hyper, algo))
        assert method_label(config) == f"{algo}-{name}"


def test_tuning_points_are_valid_and_new(algo, tiny):
    method = find(algo)
    points = [parse_hyper(method.Hyper, values, algo) for values in method.tuning]
    for place, point in enumerate(points):
        method.check(tiny(algo, dict(method.tuning[place]), rounds=160), build_network("digits"), point)
        assert point not in [method.Hyper(), *points[:place]]


def test_the_defaults_pass_the_methods_own_check(algo, tiny):
    method, config = find(algo), tiny(algo)
    hyper = method.Hyper()
    method.check(config, method.network_for(build_network("digits"), config, hyper), hyper)


def test_changed_hyper_parameters_are_in_the_label(tiny):
    assert method_label(tiny("ditto", {"lam": "0.5"})) == "ditto-lam=0.5"
    assert method_label(tiny("ditto", {"lam": "1"})) == "ditto"
    label = method_label(tiny("fedrep", {"body_epochs": 2, "head_epochs": 3}))
    assert label == "fedrep-head_epochs=3-body_epochs=2"


def test_unknown_methods():
    with pytest.raises(
        UserError, match=r"unknown method 'fedavgg' \(did you mean 'fedavg'\?\); known: .*ditto"
    ):
        find("fedavgg")


def test_names_are_given_once():
    class Impostor(Algorithm):
        name, title, reference = "fedavg", "An impostor", "none"

    class Twin(ALGORITHMS["fedavg"]):
        name = "fedavg-twin"  # and the title that it inherits

    with pytest.raises(ValueError, match="two methods are called 'fedavg'"):
        register(Impostor)
    with pytest.raises(ValueError, match="the title 'FedAvg' of 'fedavg-twin' is that of 'fedavg'"):
        register(Twin)
    assert ALGORITHMS["fedavg"] is not Impostor
    assert "fedavg-twin" not in ALGORITHMS


@dataclasses.dataclass(frozen=True)
class Undocumented:
    """A hyper-parameter that no list could show."""

    rate: float = 0.5


@pytest.mark.parametrize(
    ("attribute", "value", "problem"),
    [
        ("name", "", "has no `name`"),
        ("name", "../../halved", "a method is called '../../halved'; expected letters"),
        ("name", "--halved", "a method is called '--halved'"),
        ("name", "my halved", "a method is called 'my halved'"),
        ("name", 3, "a method is called 3"),
        ("ablations", {"no/half": {}}, "an? ablation is called 'no/half'"),
        ("title", "", "has no `title`"),
        ("reference", "", "has no `reference`"),
        ("Hyper", type("Bare", (), {}), "Bare of 'halved' is no dataclass"),
        ("Hyper", type("Bare", (Undocumented,), {}), "Bare of 'halved' is no dataclass"),
        ("Hyper", {"rate": 0.5}, "{'rate': 0.5} of 'halved' is no dataclass"),
        ("Hyper", Undocumented, r"rate of Undocumented is no `option\(default, doc\)`"),
    ],
)
def test_what_lists_and_tables_need_is_asked_for_at_once(attribute, value, problem):
    complete = {"name": "halved", "title": "Halved", "reference": "none"}
    method = type("Halved", (Algorithm,), {**complete, attribute: value})
    with pytest.raises(ValueError, match=problem):
        register(method)
    assert "halved" not in ALGORITHMS


def test_a_class_of_another_kind_is_no_method():
    with pytest.raises(ValueError, match="is no subclass of Algorithm"):
        register(Undocumented)


def test_an_option_without_a_default_is_refused():
    rate = dataclasses.field(metadata={"doc": "documented, and no more"})
    hyper = dataclasses.make_dataclass("Hyper", [("rate", float, rate)])
    method = type(
        "Halved", (Algorithm,), {**dict.fromkeys(("name", "title", "reference"), "h"), "Hyper": hyper}
    )
    with pytest.raises(ValueError, match="rate of Hyper is no `option"):
        register(method)
    assert "h" not in ALGORITHMS
