"""What the entries of rounds.jsonl and summary.json may be: one rule an entry, for all who read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COSTS = ("bytes_down", "bytes_up", "bytes_broadcast", "samples", "steps", "adaptation_samples")
SCORES = ("accuracy", "accuracy_unweighted", "accuracy_worst10", "accuracy_std", "test_loss")
DETAILS = ("macro_f1", "auc", "auc_clients")  # which older records do not have, nor evaluations on the way

_SCORED = ("brier", "ece", "ece_debiased")  # which older records do not have
_SCALED = ("scaled_test_loss", *(f"scaled_{name}" for name in _SCORED))  # under --temperature-scaling
CALIBRATION = (*_SCORED, *_SCALED)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What an entry may be."""

    types: tuple[type, ...]  # of which its own is one; bool is no int
    words: str
    least: float | None = None  # of a number
    most: float = math.inf
    of: Allowed | None = None  # the entries of a list

    def fits(self, value: Any) -> bool:
        """Whether a value read from JSON is that."""
        if type(value) not in self.types or not (self.least is None or self.least <= value <= self.most):
            return False
        return self.of is None or all(self.of.fits(entry) for entry in value)


TEXT = Allowed((str,), "text")
COUNT = Allowed((int,), "a whole number of at least 0", 0)
_POSITIVE = Allowed((int,), "a whole number of at least 1", 1)
_LEAST_ZERO = Allowed((int, float), "a number of at least 0", 0)
_SHARE = Allowed((int, float), "a number in [0, 1]", 0, 1)
_PLAIN = Allowed((str, int, float, bool, type(None)), "text or a number")
NUMBER = Allowed((int, float), "a number")
OBJECT = Allowed((dict,), "an object")
COUNTS, NUMBERS, TEXTS = (
    Allowed((list,), f"a list of {each.words}", of=each) for each in (COUNT, NUMBER, TEXT)
)

_EVALUATED: Mapping[str, Allowed] = {
    "evaluated": TEXT,
    **dict.fromkeys(SCORES, _SHARE),
    "test_loss": _LEAST_ZERO,
}
_DETAILED: Mapping[str, Allowed] = {**dict.fromkeys(DETAILS[:2], _SHARE), "auc_clients": COUNT}
_CALIBRATED: Mapping[str, Allowed] = {
    **dict.fromkeys(CALIBRATION, _SHARE),
    **dict.fromkeys(("brier", "scaled_brier"), Allowed((int, float), "a number in [0, 2]", 0, 2)),
    "scaled_test_loss": _LEAST_ZERO,
}
_EVALUATION: Mapping[str, Allowed] = {
    **_EVALUATED,
    "eval_clients": _POSITIVE,  # under --eval-clients
    **_DETAILED,
    **_CALIBRATED,
}
_ROUND: Mapping[str, Allowed] = {
    **dict.fromkeys(("round", "stage", "participants"), _POSITIVE),
    **dict.fromkeys(COSTS, COUNT),
    **dict.fromkeys(("seconds", "seconds_closing"), _LEAST_ZERO),
    "loss": NUMBER,  # of a method's own loss, which may be below 0
}
_SUMMARY: Mapping[str, Allowed] = {
    **_EVALUATED,
    **dict.fromkeys(COSTS, COUNT),
    **dict.fromkeys(("samples_per_second", "seconds"), _LEAST_ZERO),
    "rounds": _POSITIVE,
    "budget": OBJECT,
    "resumed": COUNT,
    "notes": TEXTS,
    "environment": OBJECT,
}
_LATER: Mapping[str, Allowed] = {
    "shared_rounds": COUNT,
    "new_clients": OBJECT,
    "origins": Allowed((list,), "a list of objects", of=OBJECT),
    **_DETAILED,
    **_CALIBRATED,
    "global_accuracy": _SHARE,
    "drift": OBJECT,
    "saved": OBJECT,
}  # which older records do not have
_NEW: Mapping[str, Allowed] = {
    **dict.fromkeys(SCORES, _SHARE),
    "test_loss": _LEAST_ZERO,
    "clients": _POSITIVE,
    **dict.fromkeys(("bytes_down", "samples", "steps"), COUNT),
}
_PLAN: Mapping[str, Allowed] = {"rounds": _POSITIVE, "set_by": TEXT, "limit": COUNT, "planned": COUNT}
_NAMES = ("commit", "code", "device", "executor", "torch", "processor")  # entries of environments


Rules = Mapping[str, Allowed]


def check_entries(where: str, entries: Any, needed: Rules, others: Rules) -> None:
    """Hold an object against rules (`others`: for entries that may be absent); a ValueError says `where`."""
    if not isinstance(entries, dict):
        raise ValueError(f"{where} is no object")
    if absent := needed.keys() - entries.keys():
        raise ValueError(f"{where} lacks the entry '{min(absent)}'")
    for rules in (needed, others):
        for name, allowed in rules.items():
            if name in entries and not allowed.fits(entries[name]):
                raise ValueError(f"{where}: {name} is {_short(entries[name])}; expected {allowed.words}")


def check_rounds(lines: Any) -> None:
    """Check the lines of rounds.jsonl, from the first round; a ValueError names what does not fit."""
    if not isinstance(lines, list):
        raise ValueError("rounds.jsonl is no list of rounds")
    for number, line in enumerate(lines, start=1):
        where = f"line {number} of rounds.jsonl"
        check_entries(where, line, _ROUND, _EVALUATION)
        if line["round"] != number:
            raise ValueError(f"{where} is of round {line['round']}")
        if ("evaluated" in line) != ("accuracy" in line):
            raise ValueError(f"{where} is half an evaluation")


def check_summary(found: Any) -> None:
    """Check the content of summary.json; a ValueError names what does not fit."""
    check_entries("summary.json", found, _SUMMARY, _LATER)
    check_entries("the budget of summary.json", found["budget"], _PLAN, {})
    if found["evaluated"] not in ("global", "personal"):
        raise ValueError(
            f"summary.json: evaluated is {_short(found['evaluated'])}; expected global or personal"
        )
    if "new_clients" in found:
        check_entries("new_clients of summary.json", found["new_clients"], _NEW, {**_DETAILED, **_CALIBRATED})
    _check_environment("the environment of summary.json", found["environment"], {})
    for origin in found.get("origins", ()):
        _check_environment("an origin in summary.json", origin, {"from_round": _POSITIVE})


def _check_environment(where: str, found: Any, needed: Rules) -> None:
    check_entries(where, found, needed, {})
    check_entries(where, found, {}, {**dict.fromkeys(found, _PLAIN), **dict.fromkeys(_NAMES, TEXT)})


def _short(value: Any) -> str:
    """A value as a message shows it, in a few characters."""
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
