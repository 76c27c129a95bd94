"""What a worker tells about a cell, and what is made of it: shared by all launchers that have workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmark.launch.base import Ended

__all__ = ["Died", "Report", "Reporter", "Round", "Started"]


@dataclass(frozen=True)
class Started:
    """The run begins; `done` of its `rounds` were found finished."""

    rounds: int
    done: int


@dataclass(frozen=True)
class Round:
    """A round is finished; `line` is what goes into rounds.jsonl."""

    line: Mapping[str, Any]


@dataclass(frozen=True)
class Died:
    """The worker is gone, with whatever cell it had; `how` in words."""

    how: str


Report = Started | Round | Ended | Died


class Reporter:
    """A `benchmark.engine.rounds.Observer` in a worker."""

    def __init__(self, report: Callable[[Report], object]) -> None:
        self._report = report

    def start(self, rounds: int, done: int) -> None:
        """The run begins."""
        self._report(Started(rounds, done))

    def round(self, line: Mapping[str, Any]) -> None:
        """A round is finished."""
        self._report(Round(line))
