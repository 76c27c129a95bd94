"""Files of weights: read, and fitted to a network."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pfl_benchmark.errors import UserError, optional, why
from pfl_benchmark.models.layers import Layer, Params
from pfl_benchmark.models.module import ModuleLayer, ModuleLinear
from pfl_benchmark.models.network import Network

_EXPECTED = "expected safetensors, or a state dict that torch.save has written"
_INNER = ("state_dict", "model", "model_state_dict")  # where training scripts put it
_COUNTED = "num_batches_tracked"  # of batch normalisation, without use


@dataclass(frozen=True)
class Fitted:
    """What a network takes from a file.

    Attributes:
        tensors: by the network's names, of whole layers.
        fresh: layers that start fresh, and why.
        unused: tensors of the file that the network does not have.
    """

    tensors: Params
    fresh: Mapping[str, str]
    unused: tuple[str, ...]

    def note(self, name: str) -> str:
        """A line about what is not as one may think; empty if all fits."""
        parts = [f"{layer} starts fresh ({reason})" for layer, reason in self.fresh.items()]
        if self.unused:
            parts.append(
                f"{len(self.unused)} of its tensors are of no use to the network, such as {self.unused[0]}"
            )
        return f"--weights {name}: {'; '.join(parts)}" if parts else ""


def read_weights(path: Path) -> Params:
    """The tensors of a file by name, on the CPU; UserError: it holds none, or could run code."""
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise UserError(f"--weights {path}: {why(error)}; {_EXPECTED}") from error
    if start[8:] == b"{":
        return _plain_names(_safetensors(path))
    try:
        with warnings.catch_warnings():  # of the pickle's version, as if that were what is wrong
            warnings.simplefilter("ignore", UserWarning)
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"--weights {path}: it holds more than tensors, and what could run code is not loaded; save a "
            "state dict alone (torch.save(model.state_dict(), FILE)), or safetensors"
        ) from error
    except Exception as error:  # whatever PyTorch makes of a file that is none of its own
        raise UserError(f"--weights {path}: it cannot be read as weights; {_EXPECTED}") from error
    return _plain_names(_state_dict(found, path))


def _safetensors(path: Path) -> Params:
    load = optional("safetensors.torch", "--weights with a file of safetensors")
    try:
        return load.load_file(path)
    except Exception as error:  # of the package's own kind, and others
        raise UserError(f"--weights {path}: it is damaged ({error}); bring it back") from error


def _state_dict(found: Any, path: Path) -> Params:
    for name in _INNER:
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
    if not (isinstance(found, dict) and found and all(isinstance(name, str) for name in found)):
        raise UserError(f"--weights {path}: it holds no tensors by name; {_EXPECTED}")
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def _plain_names(tensors: Params) -> Params:
    """Tensors without what `DataParallel` and `torch.compile` put before all names."""
    for prefix in ("module.", "_orig_mod.", "module."):
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return tensors


def fit_weights(network: Network, found: Mapping[str, Tensor], name: str) -> Fitted:
    """What a network without adapters takes from the tensors of a file, layer by layer.

    Tensors are called as in the network, or as in the module that the network is made of. A layer takes all
    of its tensors, or starts fresh.

    Args:
        name: of the file, for messages.

    Raises:
        UserError: no layer but perhaps the last one fits, or values are not finite.
    """
    tensors: Params = {}
    fresh: dict[str, str] = {}
    names = {key: each for layer in network.layers for key, each in _names(network, layer).items()}
    for layer in network.layers:
        own: Params = {}
        for key, shape in layer.shapes().items():
            there = next((name for name in names[key] if name in found), names[key][-1])
            if there not in found:
                fresh[layer.name] = f"{there} is not in the file"
                break
            tensor = found[there]
            if reason := _unusable(tensor):
                fresh[layer.name] = f"{there} is {reason}"
                break
            if (tuple(tensor.shape) or (1,)) != shape:
                fresh[layer.name] = f"{there} is {_size(tensor.shape)}, expected {_size(shape)}"
                break
            own[key] = tensor.to(torch.float32).reshape(shape)
        else:
            tensors |= own
    if fresh and not any(layer.name not in fresh for layer in network.layers[:-1]):
        examples = ", ".join(f"{key} {_size(tensor.shape)}" for key, tensor in [*found.items()][:3])
        first, reason = next(iter(fresh.items()))
        raise UserError(
            f"--weights {name}: they are of another network: it has {examples or 'no tensors'}, and the "
            f"layers {', '.join(network.names)} fit none of that ({first}: {reason}); give weights of this "
            "network, or another --network"
        )
    if wrong := next((key for key, tensor in tensors.items() if not torch.isfinite(tensor).all()), ""):
        raise UserError(f"--weights {name}: {wrong} holds values that are not finite; give other weights")
    known = {name for each in names.values() for name in each}
    unused = [key for key in found if key not in known and not key.endswith(_COUNTED)]
    return Fitted(tensors, fresh, tuple(unused))


def _names(network: Network, layer: Layer) -> dict[str, list[str]]:
    """What each tensor of a layer may be called in a file: as here, or as in the module it is of.

    In a network of two layers the first may be a module without its classifier, whose names are its own.
    """
    prefix = f"{layer.name}."
    found = {key: [key] for key in layer.shapes()}
    if isinstance(layer, ModuleLayer):
        for key, names in found.items():
            inner = key.removeprefix(prefix)
            names.append(inner)
            if len(network.layers) == 2 and inner.startswith(prefix):
                names.append(inner.removeprefix(prefix))
    if isinstance(layer, ModuleLinear) and layer.inside:
        for key, names in found.items():
            names.append(f"{layer.inside}.{key.removeprefix(prefix)}")
    return found


def _unusable(tensor: Tensor) -> str:
    """Why a tensor cannot be taken as it is: empty if it can."""
    if tensor.is_meta:
        return "without values"
    if tensor.layout != torch.strided:
        return f"stored as {str(tensor.layout).removeprefix('torch.')}"
    if not tensor.is_floating_point():
        return f"of {str(tensor.dtype).removeprefix('torch.')}, not of floating-point numbers"
    return ""


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a number"
