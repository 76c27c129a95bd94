"""The committed table of comparisons is that of these tests; what is no checkout is said to be none."""

import json
import math
import subprocess
from pathlib import Path

import checkouts
import pytest
import torch
from checkouts import CHECKOUTS, TABLE, WRITE, enter
from federation import gap
from test_parity import PAIRS
from test_parity_pfedfda import PAIR

from docs.generate import parity
from pfl_benchmark.algorithms import ALGORITHMS

ROOT = Path(__file__).resolve().parents[2]
EVERY = [*PAIRS, PAIR]


@pytest.fixture(scope="module")
def table():
    return json.loads(TABLE.read_text(encoding="utf-8"))


def test_the_table_holds_what_is_compared_and_nothing_else(table):
    entries = {(name, label) for name, own in table["methods"].items() for label in own}
    assert entries == {(pair.algo, pair.label) for pair in EVERY}
    assert {pair.source for pair in EVERY} == set(table["checkouts"])
    assert all(len(checkout["commit"]) == 40 for checkout in table["checkouts"].values())


@pytest.mark.parametrize("pair", EVERY, ids=lambda pair: f"{pair.algo}-{pair.label}")
def test_an_entry_is_that_of_its_comparison(table, pair):
    entry = table["methods"][pair.algo][pair.label]
    assert entry["settings"] == dict(pair.hyper)
    assert entry["left_out"] == [*pair.left_out]
    assert entry["deviates"] == [*pair.deviates]
    assert entry["equal"] == (pair.within is not None)
    largest = max(gap for gaps in entry["gaps"].values() for gap in gaps.values())
    assert (largest <= pair.within) if entry["equal"] else largest > 1e-6


def test_every_method_has_its_line_and_its_row(table):
    page = parity.page(table)
    for name, method in ALGORITHMS.items():
        assert f"[{method.title}](methods/{name}.md)" in page
        equal = any(entry["equal"] for entry in table["methods"].get(name, {}).values())
        assert parity.line(table, name).startswith("Equal" if equal else "No public code was compared")


@pytest.mark.parametrize("key", CHECKOUTS)
@pytest.mark.parametrize("kind", ["unset", "nothing", "folder", "file"])
def test_what_is_no_checkout_is_skipped_with_what_was_expected(key, kind, tmp_path, monkeypatch):
    checkout, place = CHECKOUTS[key], tmp_path / "somewhere"
    if kind == "folder":
        place.mkdir()
    elif kind == "file":
        place.write_text("")
    if kind == "unset":
        monkeypatch.delenv(checkout.variable, raising=False)
    else:
        monkeypatch.setenv(checkout.variable, str(place))
    with pytest.raises(pytest.skip.Exception) as skipped:
        checkout.find()
    reason = str(skipped.value)
    assert checkout.variable in reason
    assert checkout.repository in reason
    assert "\n" not in reason
    assert kind == "unset" or checkout.expected in reason


@pytest.mark.parametrize("changed", [False, True])
def test_only_an_unchanged_git_checkout_gets_into_the_table(changed, tmp_path, monkeypatch):
    checkout = CHECKOUTS["pfllib"]
    file = tmp_path / checkout.expected
    file.parent.mkdir(parents=True)
    file.write_text("x = 1\n")
    words = ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "one"]
    for step in (["init", "-q"], ["add", "."], words):
        subprocess.run(["git", "-C", tmp_path, *step], check=True)
    monkeypatch.setenv(checkout.variable, str(tmp_path))
    monkeypatch.setenv(WRITE, "1")
    if not changed:
        assert len(checkout.commit()) == 40
        return
    file.write_text("x = 2\n")
    assert checkout.commit() == ""
    with pytest.raises(pytest.fail.Exception, match="no unchanged git checkout"):
        enter(PAIRS[0], 1.0, {"server": 0.0})


def test_entries_of_another_commit_leave_the_table(table, tmp_path, monkeypatch):
    pair = next(pair for pair in PAIRS if pair.source == "pfllib")
    checkout = CHECKOUTS["pfllib"]
    module = tmp_path / checkout.folder / f"{pair.server.partition(':')[0].replace('.', '/')}.py"
    for file in (tmp_path / checkout.expected, module):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    monkeypatch.setenv(checkout.variable, str(tmp_path))
    monkeypatch.setenv(WRITE, "1")
    monkeypatch.setattr(checkouts.Checkout, "commit", lambda self: "f" * 40)
    monkeypatch.setattr(checkouts, "TABLE", tmp_path / "parity.json")
    (tmp_path / "parity.json").write_text(json.dumps(table))
    enter(pair, 1.0, {"server": 0.0})
    found = json.loads((tmp_path / "parity.json").read_text())
    left = {(n, label): e for n, own in found["methods"].items() for label, e in own.items()}
    (own,) = [e for e in left.values() if e["source"] == "pfllib"]
    assert own["code"] == str(module.relative_to(tmp_path)) == table["methods"][pair.algo][pair.label]["code"]
    others = [e for own in table["methods"].values() for e in own.values() if e["source"] != "pfllib"]
    assert len(left) == 1 + len(others)
    assert found["checkouts"]["pfllib"]["commit"] == "f" * 40


def test_what_is_no_number_is_a_gap():
    one = [torch.tensor([1.0, 5.0])]
    assert gap(one, one) == 0
    assert math.isnan(gap([*one, *one], [*one, torch.tensor([1.0, float("nan")])]))
