"""Bytes and compute of one round, counted from the tensors that were really sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from pfl_benchmark.engine.local import LocalResult
from pfl_benchmark.engine.message import Message
from pfl_benchmark.engine.params import nbytes


class Meter:
    """Counts samples and steps that a method spends outside of its phases, until the engine collects them."""

    def __init__(self) -> None:
        self._samples = self._steps = 0

    def charge(self, samples: int, steps: int = 0) -> None:
        """Add samples that a model was run on, and steps of gradient descent."""
        self._samples += samples
        self._steps += steps

    def collect(self) -> tuple[int, int]:
        """Samples and steps since the last time."""
        found, self._samples, self._steps = (self._samples, self._steps), 0, 0
        return found

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is charged within does not count."""
        before = self._samples, self._steps
        yield
        self._samples, self._steps = before


@dataclass
class Ledger:
    """What a round has cost.

    Attributes:
        bytes_down: server to clients, over all participations; what a client receives once, in its first
            round of a stage, included.
        bytes_up: clients to server.
        bytes_broadcast: the last aggregate to every client, once per run (per stage for staged methods),
            without which clients could not use it; for those that have never taken part, with what they
            would have received in their first round.
        samples, steps: training samples processed and SGD steps taken, those that a method meters included.
        adaptation_samples: samples processed by adaptation before the final evaluation.
    """

    bytes_down: int = 0
    bytes_up: int = 0
    bytes_broadcast: int = 0
    samples: int = 0
    steps: int = 0
    adaptation_samples: int = 0

    def charge_message(self, message: Message, clients: int, first: int = 0) -> None:
        self.bytes_down += message.nbytes(clients, first)

    def charge_upload(self, stacked: Mapping[str, Tensor]) -> None:
        self.bytes_up += nbytes(stacked)

    def charge_closing(self, message: Message, clients: int) -> None:
        self.bytes_broadcast += message.nbytes(clients)

    def charge_left_out(self, message: Message, clients: int) -> None:
        self.bytes_broadcast += clients * nbytes(message.first)

    def charge_training(self, outcome: LocalResult) -> None:
        self.samples += outcome.samples
        self.steps += outcome.steps

    def charge_metered(self, meter: Meter) -> None:
        samples, steps = meter.collect()
        self.samples += samples
        self.steps += steps

    def charge_adaptation(self, outcome: LocalResult) -> None:
        self.adaptation_samples += outcome.samples
