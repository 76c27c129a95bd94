"""What came of running a record's rounds again: figures, the differences between them, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pfl_benchmark.records.environment import deciding
from pfl_benchmark.records.record import Record
from pfl_benchmark.records.seal import BIT_EQUAL, DIFFERENT, DRIFTED, WITHIN_TOLERANCE, write_verdict
from pfl_benchmark.records.sources import same_code

# Counts and words must be the same. Of real numbers |recorded - found| / max(1, |recorded|) may be so much,
# since executors, hardware and libraries sum in different orders.
TOLERANCE = 1e-3

# Where a record was made elsewhere, it may be as many times as far away as a control run was until the same
# round (`verify.NUDGE`).
DRIFT = 10.0

_TIMED = ("seconds", "seconds_closing", "samples_per_second")
_HISTORY = ("shared_rounds", "resumed", "notes", "environment", "origins", "saved")
_SHOWN = 10  # differences that are kept one by one

Figures = dict[tuple[str, str], Any]
"""What is compared, by place (``round 3``, ``client 0``, ``summary``, ``diagnostics``) and field."""


@dataclass(frozen=True)
class Gap:
    """A figure that is not the recorded one."""

    place: str
    field: str
    recorded: Any
    found: Any  # None where there is no such figure any more
    excess: float  # the difference, in tolerances; infinite where the figure has to be the same

    def __str__(self) -> str:
        return f"{self.place}, {self.field}: {self.recorded} recorded, {self.found} found"

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("place", "field", "recorded", "found")}


@dataclass(frozen=True)
class Verdict:
    """What came of running a record's first rounds again."""

    record: Record
    rounds: int  # that were compared; with all of the run's also what it ended with
    figures: int  # how many were compared
    gaps: Sequence[Gap]  # all that are not exactly the recorded ones, in the record's order
    environment: Mapping[str, Any]  # of this process, as in a summary
    drift: Mapping[str, float] = field(default_factory=dict)  # of the control run, in tolerances, by place

    @property
    def verdict(self) -> str:
        if not self.gaps:
            return BIT_EQUAL
        if not any(gap.excess > 1 for gap in self.gaps):
            return WITHIN_TOLERANCE
        return DIFFERENT if self.beyond else DRIFTED

    @property
    def beyond(self) -> list[Gap]:
        """The differences that neither the tolerance nor the control run covers."""
        whole = self.drift.get("", 0.0)
        return [gap for gap in self.gaps if gap.excess > max(1, DRIFT * self.drift.get(gap.place, whole))]

    @property
    def largest(self) -> Gap | None:
        """The difference of most tolerances, the first of several."""
        return max(self.gaps, key=lambda gap: gap.excess, default=None)

    @property
    def elsewhere(self) -> list[str]:
        """What the floats depend on, besides the code, and was otherwise: ``executor threads, here loop``."""
        then, now = (deciding(found) for found in (self.record.summary["environment"], self.environment))
        return [
            f"{name} {then.get(name, 'unknown')}, here {now.get(name, 'unknown')}"
            for name in dict.fromkeys((*then, *now))
            if name != "code" and then.get(name) != now.get(name)
        ]

    @property
    def suspicious(self) -> bool:
        """Whether figures differ at all, though code and all that floats depend on are the same."""
        same = same_code(self.record.summary["environment"].get("code"), self.environment["code"])
        return bool(self.gaps) and same and not self.elsewhere

    def to_dict(self, by: str = "") -> dict[str, Any]:
        """As it stands in verified.json; `by`: who verified, if that is to be on record."""
        return {
            **({"by": by} if by else {}),
            "verdict": self.verdict,
            "rounds": self.rounds,
            "of": len(self.record.rounds),
            "figures": self.figures,
            "unequal": len(self.gaps),
            "beyond_tolerance": len(self.beyond),
            **({"drift": self.drift[""]} if self.drift else {}),
            "first_beyond": [gap.to_dict() for gap in self.beyond[:_SHOWN]],
            "largest": self.largest.to_dict() if self.largest else None,
            "code": self.environment["code"],
            "environment": dict(self.environment),
            "record_digest": self.record.digest,
        }

    def save(self, by: str = "") -> None:
        """Keep it in the record's folder, as `to_dict`; UserError where that is impossible."""
        write_verdict(self.record.folder, self.to_dict(by))


def figures_of(lines: Sequence[Mapping[str, Any]], record: Record | None) -> Figures:
    """The figures of some rounds and, if `record` is given, of what that says of the whole run."""
    parts = [(f"round {line['round']}", line) for line in lines]
    if record is not None:
        parts += [(f"client {number}", client) for number, client in enumerate(_clients(record))]
        parts += [("summary", record.summary), ("diagnostics", record.diagnostics)]
    return {
        (place, field): value
        for place, part in parts
        for name, content in part.items()
        if name not in (*_TIMED, *_HISTORY)
        for field, value in _leaves(name, content)
    }


def _clients(record: Record) -> Iterator[dict[str, Any]]:
    names = ("test_samples", "accuracy", "loss", "macro_f1", "auc")
    parts = [(record.test_samples, record.accuracies, record.losses, record.macro_f1, record.auc)]
    if (new := record.newcomers) is not None:
        parts.append((new.total, new.accuracies, new.loss, new.macro_f1, new.auc))
    for columns in parts:
        known = {name: column for name, column in zip(names, columns, strict=True) if column is not None}
        for values in zip(*(column.tolist() for column in known.values()), strict=True):
            # Without an AUC, a client has NaN, which would differ from itself.
            yield {name: None if value != value else value for name, value in zip(known, values, strict=True)}


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """``stages[0].clients.beta[3]`` and its value, for all that is in `value`."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner)
    elif isinstance(value, (list, tuple)):
        for position, inner in enumerate(value):
            yield from _leaves(f"{name}[{position}]", inner)
    else:
        yield name, value


def gaps_of(recorded: Figures, found: Figures) -> list[Gap]:
    """What is not the same; what records did not tell yet does not count."""
    return [
        Gap(*key, value, found.get(key), _excess(value, found.get(key)))
        for key, value in recorded.items()
        if found.get(key) != value
    ]


def _excess(recorded: Any, found: Any) -> float:
    """The difference of two values in tolerances."""
    if not isinstance(recorded, float) or not isinstance(found, float):
        return math.inf
    return abs(recorded - found) / (TOLERANCE * max(1.0, abs(recorded)))


def drift_of(gaps: Sequence[Gap], rounds: int) -> dict[str, float]:
    """The largest gap of real numbers until each round, by place, and of all (``""``)."""
    real = [gap for gap in gaps if math.isfinite(gap.excess)]
    drift, largest = dict[str, float](), 0.0
    for place in (f"round {number}" for number in range(1, rounds + 1)):
        drift[place] = largest = max([largest, *(gap.excess for gap in real if gap.place == place)])
    return {**drift, "": max([largest, *(gap.excess for gap in real)])}
