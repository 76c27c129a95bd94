"""The page of comparisons with public code, and each method's line of it, from docs/parity.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pfl_benchmark.algorithms import ALGORITHMS

__all__ = ["line", "page", "table"]

Entry = Mapping[str, Any]
Table = Mapping[str, Any]

_NONE = "no public code was compared: held to its equations by `tests/algorithms`"
_WORDS = {"correct": "predictions"}

_INTRO = """# Parity with public code

Methods of this project and of public code, trained side by side in float64: one small network, five clients
of digits with 10 to 50 samples each (25 to 75 with FedFomo), equal weights, equal order of the batches, three
rounds, with all clients in a round and, where the table says participation 0.6, with three of five. After
each round the parameters of the server and of every client are compared, and how many test samples of each
client are predicted correctly. A gap is the largest absolute difference of two numbers in all of them;
numbers of correct predictions are equal where nothing else is said. Momentum is 0 and all batches are full,
as public code drops others. Of pFedFDA one evaluation of a client on drawn features is compared, without
training.

Three gaps are larger than those of float64: FedDWA's code has its weights of models in float32, FedRoD here
has the logarithm of the class counts in float32, and both sides of FedPAC solve a quadratic problem up to a
tolerance."""

_DEVIATIONS = """## What public code does otherwise

Found on the way, and how far it leads within three rounds: the largest difference of a parameter, and of the
number of correct predictions of a client (of 17)."""

_REPEAT = """## Repeat it

```
{clones}
{variables} ./run_all.sh test tests/parity
```

Tests whose variable is not set are skipped. With `PFL_PARITY_WRITE=1` the run writes what it has measured to
`docs/parity.json`, from which this page is made. FedPAC's comparison needs the package `cvxpy`. Public code
is imported from these checkouts, with stubs of what reads files; none of it is part of this project."""


def table(root: Path) -> Table:
    """What `tests/parity` has measured."""
    return json.loads((root / "docs" / "parity.json").read_text(encoding="utf-8"))


def line(found: Table, name: str) -> str:
    """A method's result in a sentence."""
    alike: dict[tuple[str, tuple[str, ...]], float] = {}
    for _, entry in _equal(found, name):
        key = found["checkouts"][entry["source"]]["repository"], tuple(entry["left_out"])
        alike[key] = max(_largest(entry), alike.get(key, 0.0))
    parts = [
        f"{'Equal in part' if left else 'Equal'} to {repository}, largest gap {gap:.0e}"
        f"{'. Left out: ' if left else ''}{'; '.join(left)}"
        for (repository, left), gap in alike.items()
    ]
    return ". ".join(parts) if parts else f"{_NONE[0].upper()}{_NONE[1:]}"


def page(found: Table) -> str:
    """The whole page."""
    return "\n\n".join([_INTRO, _results(found), _DEVIATIONS, _deviations(found), _repeat(found)]) + "\n"


def _entries(found: Table, name: str, equal: bool) -> Iterator[tuple[str, Entry]]:
    for label, entry in found["methods"].get(name, {}).items():
        if entry["equal"] == equal:
            yield label, entry


def _equal(found: Table, name: str) -> list[tuple[str, Entry]]:
    return [*_entries(found, name, True)]


def _gaps(entry: Entry) -> dict[str, float]:
    """The largest gap of each thing that was compared, over all shares of participants."""
    runs = entry["gaps"].values()
    return {what: max(gaps[what] for gaps in runs) for what in entry["compared"]}


def _largest(entry: Entry) -> float:
    return max(gap for what, gap in _gaps(entry).items() if what != "correct" or gap)


def _results(found: Table) -> str:
    rows = ["| method | result | code | compared | largest gap | left out |", "|---|---|---|---|---|---|"]
    for name, method in sorted(ALGORITHMS.items()):
        title = f"[{method.title}](methods/{name}.md)"
        entries = _equal(found, name)
        if not entries:
            rows.append(f"| {title} | {_NONE} | | | | |")
        for label, entry in entries:
            repository = found["checkouts"][entry["source"]]["repository"]
            variant = label.partition("-")[2]
            compared = ", ".join(_WORDS.get(what, what) for what in entry["compared"])
            shares = " and ".join(entry["gaps"])
            cells = [
                title,
                "equal in part" if entry["left_out"] else "equal",
                f"{repository} `{entry['code']}`{f' ({variant})' if variant else ''}",
                f"{compared}; participation {shares}",
                f"{_largest(entry):.0e}",
                "; ".join(entry["left_out"]),
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _deviations(found: Table) -> str:
    rows = ["| method | code | what | parameters | predictions |", "|---|---|---|---|---|"]
    for name, method in sorted(ALGORITHMS.items()):
        for equal in (False, True):
            for _, entry in _entries(found, name, equal):
                if not entry["deviates"]:
                    continue
                gaps, apart = _gaps(entry), "not measured"
                numbers = [gap for what, gap in gaps.items() if what != "correct"]
                parameters = (f"{max(numbers):.1g}" if numbers else "") if not equal else apart
                predictions = f"{gaps['correct']:.0f}" if "correct" in gaps and not equal else ""
                repository = found["checkouts"][entry["source"]]["repository"]
                what = "; ".join(entry["deviates"])
                cells = [method.title, f"{repository} `{entry['code']}`", what, parameters, predictions]
                rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _repeat(found: Table) -> str:
    clones, variables = [], []
    for key, checkout in found["checkouts"].items():
        place = checkout["repository"].partition("/")[2]
        clones.append(f"git clone https://github.com/{checkout['repository']} ../{place}")
        clones.append(f"git -C ../{place} checkout {checkout['commit']}")
        variables.append(f"PFL_PARITY_{key.upper()}=../{place}")
    return _REPEAT.format(clones="\n".join(clones), variables=" ".join(variables))
