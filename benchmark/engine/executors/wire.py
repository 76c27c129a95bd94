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
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import Network
from pfl_benchmark.models.frozen import Frozen


def pack(value: object, network: Network) -> bytes:
    """`value` as bytes, without `network` and what is frozen in it, which both sides have.

    Raises:
        UserError: it holds what other processes cannot load, such as a function within a function.
    """
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, network).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UserError(
            f"what a method asks for cannot be sent to other processes ({error}); define its objectives and "
            "rules at the top of a module, or use one device"
        ) from error
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
        self._frozen = {id(tensor): place for place, tensor in _frozen(network).items()}

    def persistent_id(self, value: Any) -> tuple[str, ...] | None:
        if isinstance(value, Tensor):
            return self._frozen.get(id(value))
        return () if value is self._network else None

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
        self._network, self._frozen = network, _frozen(network)

    def persistent_load(self, place: Any) -> Network | Tensor:
        return self._frozen[place] if place else self._network


def _frozen(network: Network) -> dict[tuple[str, ...], Tensor]:
    """The tensors that never train, by layer and name; a network made of this one has the same."""
    layers = [layer for layer in network.layers if isinstance(layer, Frozen)]
    return {(layer.name, name): tensor for layer in layers for name, tensor in layer.constants.items()}


def _tensor(array: np.ndarray, count: int) -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor.expand(count, *tensor.shape[1:]) if count else tensor
