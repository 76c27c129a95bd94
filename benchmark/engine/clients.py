"""Clients in chunks, and what they keep between their participations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pfl_benchmark.engine.params import clone, expand, row
from pfl_benchmark.models import Params

CHUNK = 20  # clients whose models are held at the same time


def chunks(clients: Sequence[int]) -> Iterator[list[int]]:
    """Cut a list of clients into pieces that are held in memory together."""
    for start in range(0, len(clients), CHUNK):
        yield list(clients[start : start + CHUNK])


class ClientStore:
    """Tensors of each client, gathered and scattered by cohort.

    A client never met has no entry: it reads the common initial values, so it costs nothing.
    """

    def __init__(self, initial: Mapping[str, Tensor], clients: int) -> None:
        self.initial: Params = clone(initial)
        self.clients = clients
        self._kept: dict[int, Params] = {}

    @property
    def met(self) -> list[int]:
        """Clients that have an entry of their own."""
        return sorted(self._kept)

    def gather(self, clients: Sequence[int]) -> Params:
        """Copies of what `clients` keep, stacked [m, ...]."""
        if not clients:
            return expand(self.initial, 0)
        own = [self._kept.get(client, self.initial) for client in clients]
        return {name: torch.stack([params[name] for params in own]) for name in self.initial}

    def scatter(self, clients: Sequence[int], stacked: Mapping[str, Tensor]) -> None:
        """Keep copies of `stacked` [m, ...] for `clients`; entries that are not kept here are ignored."""
        if not self.initial:
            return
        kept = {name: stacked[name] for name in self.initial}
        for position, client in enumerate(clients):
            self._kept[client] = clone(row(kept, position))

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later."""
        return {"initial": self.initial, "kept": self._kept}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self.initial, self._kept = dict(state["initial"]), dict(state["kept"])
