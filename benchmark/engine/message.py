"""What travels: messages of the server, and how a round's uploads become one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pfl_benchmark.engine.clients import chunks
from pfl_benchmark.engine.params import exact, nbytes
from pfl_benchmark.models import Params


@dataclass(frozen=True)
class Message:
    """What the server sends to m clients. Bytes are counted from it.

    Attributes:
        common: sent to each of them alike (not stacked).
        per_client: sent to one client each, stacked [m, ...] in the order of the clients.
        first: sent besides to those that take part for the first time in the round's stage (not stacked).
    """

    common: Params = field(default_factory=dict)
    per_client: Params = field(default_factory=dict)
    first: Params = field(default_factory=dict)

    def part(self, clients: slice) -> Message:
        """The message to some of the clients."""
        return replace(self, per_client={name: tensor[clients] for name, tensor in self.per_client.items()})

    def nbytes(self, clients: int, first: int = 0) -> int:
        """Bytes that it costs to send it to its m = `clients` clients, of which `first` are new."""
        return nbytes(self.common) * clients + nbytes(self.per_client) + nbytes(self.first) * first


class Aggregator(ABC):
    """Makes one of a round's uploads, chunk by chunk, so that no round need hold all of them at once."""

    @abstractmethod
    def add(self, clients: Sequence[int], uploads: Mapping[str, Tensor], weights: Tensor) -> None:
        """Take in the stacked uploads [m, ...] of some clients with their weights [m] in the server's mean.

        The tensors must not be changed.
        """

    @abstractmethod
    def value(self) -> Params:
        """What `Algorithm.aggregate` gets, once all participants were added."""


class WeightedMean(Aggregator):
    """Running weighted mean over clients, so that no round ever holds all uploads at once.

    Sums are kept in float64: the mean of equal float32 models is that model, bit for bit.
    """

    def __init__(self) -> None:
        self._sums: Params = {}
        self._likes: Params = {}  # of the messages' precision, on their device
        self._total = 0.0

    def add(self, clients: Sequence[int], uploads: Mapping[str, Tensor], weights: Tensor) -> None:
        weights = exact(weights)
        self._total += float(weights.sum())
        for name, tensor in uploads.items():
            own = exact(tensor)
            part = torch.tensordot(weights.to(own.device), own, dims=1)
            self._likes[name] = tensor.new_empty(0)
            self._sums[name] = self._sums[name] + part if name in self._sums else part

    def value(self) -> Params:
        """The mean in the messages' own precision; empty if nothing was added."""
        return {name: (total / self._total).to(self._likes[name]) for name, total in self._sums.items()}


class Gathered(Aggregator):
    """All uploads of a round, stacked [n, ...] in the order of the cohort; for rules that need each of them.

    Attributes:
        CLIENTS, WEIGHTS: names under which `value` holds the clients' numbers [n] and weights [n], too.
    """

    CLIENTS, WEIGHTS = "cohort.clients", "cohort.weights"

    def __init__(self) -> None:
        self._parts: list[Params] = []

    def add(self, clients: Sequence[int], uploads: Mapping[str, Tensor], weights: Tensor) -> None:
        cohort = {self.CLIENTS: torch.tensor(clients), self.WEIGHTS: exact(weights)}
        self._parts.append({**uploads, **cohort})

    def value(self) -> Params:
        return {name: torch.cat([part[name] for part in self._parts]) for name in self._parts[0]}

    @staticmethod
    def mean(uploads: Mapping[str, Tensor], weights: Tensor) -> Params:
        """The weighted mean over clients [...] of gathered tensors [n, ...], as `WeightedMean` sums it."""
        found = WeightedMean()
        for part in chunks(range(len(weights))):
            found.add(part, {name: tensor[part] for name, tensor in uploads.items()}, weights[part])
        return found.value()
