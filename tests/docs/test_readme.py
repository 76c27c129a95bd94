"""README: short, and its list of methods is that of the registry."""

import re
from pathlib import Path

from pfl_benchmark.algorithms import ALGORITHMS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BARE = ("Local Only", "FedAvg+FT")  # of no publication of their own


def test_it_has_at_most_900_words():
    assert len(TEXT.split()) <= 900


def test_its_methods_are_those_of_the_registry():
    listed = {}
    for group, methods in re.findall(r"^\* \*\*([\w-]+)\*\*: (.+(?:\n  .+)*)$", TEXT, flags=re.M):
        for each in re.split(r",\s+(?:and )?", methods):
            title, year = re.fullmatch(r"(.+?)(?: (\d{4}))?", each).groups()
            listed[title] = (group.lower(), year and int(year))
    known = {
        method.title: (method.group, None if method.title in BARE else method.publication[3])
        for method in ALGORITHMS.values()
        if not method.__module__.startswith("plugin")
    }
    assert listed == known
    assert f"{len(known)} methods" in TEXT
    assert all(ALGORITHMS[name].pseudocode for name in ALGORITHMS)
