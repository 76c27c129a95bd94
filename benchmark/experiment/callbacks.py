"""Functions that are called while a run goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pfl_benchmark.engine.exits import GIVEN
from pfl_benchmark.engine.rounds import Observer

Callback = Callable[[Mapping[str, Any]], bool | None]
"""Takes the line of a round as rounds.jsonl has it; returns True to end the run after that round."""


@dataclass(frozen=True)
class Callbacks:
    """What is called after every round, and after every round that was evaluated."""

    on_round: Callback | None = None
    on_evaluation: Callback | None = None

    def ask(self, line: Mapping[str, Any]) -> bool:
        """Call them with a copy of the line; whether one of them asks for the end of the run."""
        asked = False
        for callback in (self.on_round, self.on_evaluation if "accuracy" in line else None):
            if callback is not None:
                asked = callback({**line}) is True or asked
        return asked


GIVEN.append(Callbacks.ask)


class Called:
    """An `Observer` that passes on to another one and then calls functions."""

    def __init__(self, observer: Observer, callbacks: Callbacks) -> None:
        self._observer, self._callbacks = observer, callbacks

    def start(self, rounds: int, done: int) -> None:
        """The run begins."""
        self._observer.start(rounds, done)

    def round(self, line: Mapping[str, Any]) -> bool:
        """A round is finished, now or before this process."""
        self._observer.round(line)
        return self._callbacks.ask(line)
