"""What travels: messages of the server, and how a round's uploads become one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pfl_benchmark.engine.params import nbytes
from pfl_benchmark.models import Params

__all__ = ["Combiner", "Message", "WeightedMean"]


@dataclass(frozen=True)
class Message:
    """What the server sends to m clients.

    Attributes:
        common: sent to each of them alike (not stacked).
        own: sent to one client each, stacked [m, ...] in the order of the clients.
    """

    common: Params
    own: Params = field(default_factory=dict)

    def part(self, clients: slice) -> Message:
        """The message to some of the clients."""
        return Message(self.common, {name: tensor[clients] for name, tensor in self.own.items()})

    def nbytes(self, clients: int) -> int:
        """Bytes that it costs to send it to its m = `clients` clients."""
        return nbytes(self.common) * clients + nbytes(self.own)


class Combiner(ABC):
    """Makes one of a round's uploads, chunk by chunk, so that no round need hold all of them at once."""

    @abstractmethod
    def add(self, clients: Sequence[int], uploads: Mapping[str, Tensor], weights: Tensor) -> None:
        """Take in the stacked uploads [m, ...] of some clients with their weights [m] (`Algorithm.weights`).

        The tensors must not be changed.
        """

    @abstractmethod
    def value(self) -> Params:
        """What `Algorithm.aggregate` gets, once all participants were added."""


class WeightedMean(Combiner):
    """Running weighted mean over clients, so that no round ever holds all uploads at once.

    Sums are kept in float64: the mean of equal float32 models is that model, bit for bit.
    """

    def __init__(self) -> None:
        self._sums: Params = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self._total = 0.0

    def add(self, clients: Sequence[int], uploads: Mapping[str, Tensor], weights: Tensor) -> None:
        weights = weights.to(torch.float64)
        self._total += float(weights.sum())
        for name, tensor in uploads.items():
            part = torch.tensordot(weights.to(tensor.device), tensor.to(torch.float64), dims=1)
            self._dtypes[name] = tensor.dtype
            self._sums[name] = self._sums[name] + part if name in self._sums else part

    def value(self) -> Params:
        """The mean in the messages' own precision; empty if nothing was added."""
        return {name: (total / self._total).to(self._dtypes[name]) for name, total in self._sums.items()}
