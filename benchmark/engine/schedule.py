"""Which clients take part in which round, drawn in advance and the same for every method of a seed."""

from __future__ import annotations

import math

from pfl_benchmark.engine.streams import Streams


class Schedule:
    """Uniform cohorts of ``ceil(participation × clients)`` without replacement (paper, Algorithm 1)."""

    def __init__(self, clients: int, participation: float, streams: Streams) -> None:
        self.clients = clients
        # A product slightly above an integer (0.07 × 100 = 7.000000000000001) must not add a client.
        self.cohort_size = max(1, math.ceil(participation * clients - 1e-9))
        self._streams = streams
        self._drawn: dict[int, list[int]] = {}

    def size(self, full: bool) -> int:
        """Number of participants of a round; `full` means that everyone takes part."""
        return self.clients if full else self.cohort_size

    def cohort(self, round: int, full: bool) -> list[int]:
        """Sorted client ids of a round (rounds count from 1)."""
        if full:
            return list(range(self.clients))
        if round not in self._drawn:
            rng = self._streams.get("participation", round)
            self._drawn[round] = sorted(rng.choice(self.clients, self.cohort_size, replace=False).tolist())
        return list(self._drawn[round])

    def sample(self, count: int) -> list[int]:
        """Sorted ids of `count` clients, which evaluations on the way take."""
        drawn = self._streams.get("eval-clients").choice(self.clients, count, replace=False)
        return sorted(drawn.tolist())
