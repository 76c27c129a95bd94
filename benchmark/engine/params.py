"""Operations on dictionaries of tensors; a *stacked* dictionary has a leading client axis [m, ...]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from benchmark.models import Params

__all__ = ["WeightedMean", "clone", "expand", "nbytes", "row", "select"]


def clone(params: Mapping[str, Tensor]) -> Params:
    """A deep copy."""
    return {name: tensor.clone() for name, tensor in params.items()}


def select(params: Mapping[str, Tensor], names: Iterable[str]) -> Params:
    """The named entries (no copy)."""
    return {name: params[name] for name in names}


def expand(params: Mapping[str, Tensor], count: int) -> Params:
    """The same tensors for `count` clients, as stacked views without a copy."""
    return {name: tensor.expand(count, *tensor.shape) for name, tensor in params.items()}


def row(params: Mapping[str, Tensor], index: int) -> Params:
    """One client's entries of a stacked dictionary (views)."""
    return {name: tensor[index] for name, tensor in params.items()}


def nbytes(params: Mapping[str, Tensor]) -> int:
    """Bytes that the tensors hold: what a message of them costs."""
    return sum(tensor.numel() * tensor.element_size() for tensor in params.values())


class WeightedMean:
    """Running weighted mean over clients, so that no round ever holds all uploads at once.

    Sums are kept in float64: the mean of equal float32 models is that model, bit for bit.
    """

    def __init__(self) -> None:
        self._sums: Params = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self._total = 0.0

    def add(self, stacked: Mapping[str, Tensor], weights: Tensor) -> None:
        """Add the clients of a stacked dictionary with `weights` [m]."""
        weights = weights.to(torch.float64)
        self._total += float(weights.sum())
        for name, tensor in stacked.items():
            part = torch.tensordot(weights.to(tensor.device), tensor.to(torch.float64), dims=1)
            self._dtypes[name] = tensor.dtype
            self._sums[name] = self._sums[name] + part if name in self._sums else part

    def value(self) -> Params:
        """The mean in the messages' own precision; empty if nothing was added."""
        return {name: (total / self._total).to(self._dtypes[name]) for name, total in self._sums.items()}
