"""Operations on dictionaries of tensors; a *stacked* dictionary has a leading client axis [m, ...]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from pfl_benchmark.models import Params


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


WITHOUT_FLOAT64 = {"mps"}  # types of devices


def finest(device: torch.device) -> torch.dtype:
    """The most precise type that a device has."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def precisely(tensor: Tensor) -> Tensor:
    """The tensor where there is float64: on its device, or else on the host."""
    return tensor if finest(tensor.device) == torch.float64 else tensor.cpu()


def exact(tensor: Tensor) -> Tensor:
    """In float64, there."""
    return precisely(tensor).to(torch.float64)


def nbytes(params: Mapping[str, Tensor]) -> int:
    """Bytes that the tensors hold: what a message of them costs."""
    return sum(tensor.numel() * tensor.element_size() for tensor in params.values())


def along(values: Tensor, like: Tensor) -> Tensor:
    """A value for each client [m] in a shape that combines with a stacked tensor [m, ...]."""
    return values.view(-1, *[1] * (like.dim() - 1))


def squared_distance(params: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> Tensor:
    """Squared Euclidean distances [m] of stacked tensors to `others`, stacked or of one model."""
    return torch.stack(
        [(params[name] - other).square().flatten(1).sum(1) for name, other in others.items()]
    ).sum(0)


def gradients(loss: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Of a scalar by some tensors; one that it does not use has gradient 0."""
    return torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)


def add_prefix(group: str, params: Mapping[str, Tensor]) -> Params:
    """The same tensors under names that put them beside a network's own (``GROUP.NAME``, `StackedModel`)."""
    return {f"{group}.{name}": tensor for name, tensor in params.items()}


def strip_prefix(group: str, params: Mapping[str, Tensor]) -> Params:
    """The tensors of a group, under the names that they had before `add_prefix`."""
    start = f"{group}."
    return {name.removeprefix(start): tensor for name, tensor in params.items() if name.startswith(start)}
