"""Hyper-parameters from text and JSON."""

from dataclasses import dataclass

import pytest

from pfl_benchmark.engine.algorithm import NoHyper
from pfl_benchmark.engine.hyper import option, parse_hyper
from pfl_benchmark.errors import UserError


@dataclass(frozen=True)
class Example:
    count: int = option(3, "a count", least=0)
    rate: float = option(0.5, "a rate", least=0, below=1)
    switch: bool = option(False, "a switch")
    kind: str = option("plain", "a kind", choices=("plain", "fancy"))
    sizes: tuple[int, ...] = option((4, 1), "sizes", least=1)
    shares: tuple[float, ...] = option((0.1, 0.2), "shares", below=1)


def parse(**given):
    return parse_hyper(Example, given, "example")


def test_nothing_given_is_the_defaults():
    assert parse() == Example()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("count", "7", 7),
        ("count", " 7 ", 7),
        ("count", 7, 7),
        ("rate", "0.25", 0.25),
        ("rate", "1e-3", 0.001),
        ("rate", 0, 0.0),
        ("kind", "fancy", "fancy"),
        ("sizes", "5,6,7", (5, 6, 7)),
        ("sizes", "5", (5,)),
        ("sizes", [5, 6], (5, 6)),
        ("sizes", (5, 6), (5, 6)),
        ("shares", "0.5, 0.25", (0.5, 0.25)),
        ("shares", [0], (0.0,)),
        *(("switch", text, True) for text in ("true", "True", "yes", "1", True, 1)),
        *(("switch", text, False) for text in ("false", "FALSE", "no", "0", False, 0)),
    ],
)
def test_values(name, value, expected):
    found = getattr(parse(**{name: value}), name)
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(expected, tuple):
        assert [type(entry) for entry in found] == [type(entry) for entry in expected]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("count", "x", "count=x does not fit 'example': expected a whole number, such as 3"),
        ("count", "1.5", "expected a whole number"),
        ("count", 1.5, "expected a whole number"),
        ("count", "-1", "count=-1: expected at least 0"),
        ("rate", "fast", "expected a number, such as 0.5"),
        ("rate", "1", "rate=1.0: expected less than 1"),
        ("rate", "nan", "expected a number"),
        ("rate", "inf", "expected a number"),
        ("shares", "-inf", "expected numbers separated by commas"),
        ("switch", "maybe", "expected true or false, such as False"),
        ("kind", "fance", r"expected one of: plain, fancy \(did you mean 'fancy'\?\)"),
        ("sizes", "4,x", "expected whole numbers separated by commas, such as 4,1"),
        ("sizes", "4,0", "sizes=4,0: expected at least 1"),
        ("sizes", 4, "expected whole numbers"),
        ("shares", "0.5,1", "expected less than 1"),
        (
            "cuont",
            "1",
            r"unknown hyper-parameter 'cuont' of 'example' \(did you mean 'count'\?\); known: count",
        ),
    ],
)
def test_bad_values(name, value, message):
    with pytest.raises(UserError, match=message):
        parse(**{name: value})


def test_a_method_without_hyper_parameters():
    with pytest.raises(UserError, match="'fedavg'; it has none"):
        parse_hyper(NoHyper, {"lam": "1"}, "fedavg")
    assert parse_hyper(NoHyper, {}, "fedavg") == NoHyper()
