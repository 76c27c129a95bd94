"""Messages between a run and its workers: pickles, with arrays for tensors and a name for the run's network.

They carry no device: who reads one puts its tensors where they belong (`placed`, `returned`).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pfl_benchmark.engine.local import LocalCall, LocalResult
from pfl_benchmark.models import Network

_NETWORK = "network"


def pack(value: object, network: Network) -> bytes:
    """`value` as bytes, without `network`, which both sides have."""
    buffer = io.BytesIO()
    _Pickler(buffer, network).dump(value)
    return buffer.getvalue()


def unpack(message: bytes, network: Network) -> Any:
    """What `pack` was given, its tensors on the host. Only for messages of one's own workers."""
    return _Unpickler(io.BytesIO(message), network).load()


def placed(call: LocalCall, device: torch.device) -> LocalCall:
    """A call with its tensors on a device; chances are used on the host."""
    models = {
        slot: replace(model, params=_on(model.params, device), weights=_on(model.weights, device))
        for slot, model in call.models.items()
    }
    phases = [
        replace(phase, masks=_on(phase.masks, device), constants=_on(phase.constants, device))
        for phase in call.phases
    ]
    weights, constants = _on(call.sample_weights, device), _on(call.constants, device)
    return replace(call, models=models, phases=phases, sample_weights=weights, constants=constants)


def returned(result: LocalResult, device: torch.device) -> LocalResult:
    """A result with its tensors on a device."""
    names = ("models", "loss", "features", "found")
    return replace(result, **{name: _on(getattr(result, name), device) for name in names})


def _on(value: Any, device: torch.device) -> Any:
    """Tensors in dictionaries, lists and tuples, on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: _on(one, device) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_on(one, device) for one in value)
    return value


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, network: Network) -> None:
        super().__init__(buffer, pickle.HIGHEST_PROTOCOL)
        self._network = network

    def persistent_id(self, value: Any) -> str | None:
        return _NETWORK if isinstance(value, Network) and value == self._network else None

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return NotImplemented
        host = value.detach().cpu()
        # One model for many clients, as `expand` gives it, is sent once.
        spread = host.dim() > 0 and len(host) > 1 and host.stride(0) == 0
        return _tensor, ((host[:1] if spread else host).numpy(), len(host) if spread else 0)


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, network: Network) -> None:
        super().__init__(buffer)
        self._network = network

    def persistent_load(self, name: Any) -> Network:
        return self._network


def _tensor(array: np.ndarray, count: int) -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor.expand(count, *tensor.shape[1:]) if count else tensor
