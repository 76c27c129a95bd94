"""What clients keep between their participations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmark.engine.params import clone
from benchmark.models import Params

__all__ = ["ClientStore"]


class ClientStore:
    """Rows of stacked tensors, gathered and scattered by cohort.

    A client never met has no row: it reads the common initial values, so it costs nothing.
    """

    def __init__(self, initial: Mapping[str, Tensor], clients: int) -> None:
        self.initial: Params = clone(initial)
        self.clients = clients
        self._slots: dict[int, int] = {}
        self._rows: Params = {name: tensor.new_empty((0, *tensor.shape)) for name, tensor in initial.items()}

    @property
    def met(self) -> list[int]:
        """Clients that have a row of their own."""
        return sorted(self._slots)

    def gather(self, clients: Sequence[int]) -> Params:
        """Copies of the rows of `clients`, stacked [m, ...]."""
        slots = torch.tensor([self._slots.get(client, -1) for client in clients])
        known = (slots >= 0).nonzero().squeeze(1)
        stacked = {}
        for name, start in self.initial.items():
            out = start.expand(len(clients), *start.shape).clone()
            if len(known):
                rows = self._rows[name]
                out[known.to(out.device)] = rows[slots[known].to(rows.device)]
            stacked[name] = out
        return stacked

    def scatter(self, clients: Sequence[int], stacked: Mapping[str, Tensor]) -> None:
        """Keep `stacked` [m, ...] as the rows of `clients`; entries without a row here are ignored."""
        if not self.initial:
            return
        for client in clients:
            self._slots.setdefault(client, len(self._slots))
        self._reserve(len(self._slots))
        slots = torch.tensor([self._slots[client] for client in clients])
        for name in self.initial:
            rows = self._rows[name]
            rows[slots.to(rows.device)] = stacked[name]

    def _reserve(self, count: int) -> None:
        for name, rows in self._rows.items():
            if len(rows) < count:
                grown = rows.new_empty((min(self.clients, max(count, 2 * len(rows))), *rows.shape[1:]))
                grown[: len(rows)] = rows
                self._rows[name] = grown

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later."""
        used = len(self._slots)
        rows = {name: tensor[:used] for name, tensor in self._rows.items()}
        return {"initial": self.initial, "slots": dict(self._slots), "rows": rows}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self.initial, self._slots = dict(state["initial"]), dict(state["slots"])
        self._rows = clone(state["rows"])
