"""What a module must be like for a network to be made of it, and whether that network computes the same."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pfl_benchmark.errors import UserError
from pfl_benchmark.models.network import Network

_BLOCK = 16  # channels that AVX-512 kernels take at once


def tensors_of(module: nn.Module, every_name: bool = False) -> dict[str, Tensor]:
    """Parameters and buffers by name; one of several names under the first alone, or under `every_name`."""
    named = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    if every_name:
        return dict(named)
    first: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in named:
        first.setdefault(id(tensor), (name, tensor))
    return dict(first.values())


def fixed_of(module: nn.Module) -> dict[str, Tensor]:
    """Buffers that are no part of a model: of other types than floats, or not persistent."""
    saved = module.state_dict().keys()
    found = tensors_of(module).items()
    return {name: t for name, t in found if not t.is_floating_point() or name not in saved}


def check_sharing(pieces: Mapping[str, nn.Module]) -> None:
    """Refuse split points that are not each their own; a UserError says which."""
    homes: dict[int, str] = {}
    found: list[tuple[str, Tensor]] = []
    for name, piece in pieces.items():
        if not any(True for _ in piece.parameters()):
            raise UserError(f"the split point '{name}' names no parameters; leave it out")
        for parameter in piece.parameters():
            if homes.setdefault(id(parameter), name) != name:
                raise UserError(
                    f"'{homes[id(parameter)]}' and '{name}' share a parameter; make one of them (a "
                    "child that holds both), or give each its own"
                )
        found += tensors_of(piece).items()
    for (name, one), (second, other) in itertools.combinations(found, 2):
        if (one.requires_grad or other.requires_grad) and _overlap(one, other):
            raise UserError(
                f"'{name}' and '{second}' are two tensors in the same memory, and would be trained apart; "
                "assign the parameter itself, within one split point, or a copy"
            )


def _overlap(one: Tensor, other: Tensor) -> bool:
    (begin, end), (start, stop) = _place(one), _place(other)
    return one is not other and max(begin, start) < min(end, stop)


def _place(tensor: Tensor) -> tuple[int, int]:
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return begin, begin + tensor.element_size() * (last + 1) * bool(tensor.numel())


def check_parts(whole: nn.Module) -> None:
    """Refuse what no layer could hold or compute; a UserError names the part."""
    for name, part in whole.named_modules():
        where = f"'{name}' ({type(part).__name__})"
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            raise UserError(
                f"{where} has p={part.p:g}, and dropout must come from the run's random streams; make the "
                "module with p=0 (--dropout is applied behind a layer fc2)"
            )
        if isinstance(part, nn.Conv2d) and _miscomputed(part):
            raise UserError(
                f"{where} is a 1 x 1 convolution with a stride, of fewer than {_BLOCK} channels: on CPUs its "
                "gradient writes beyond its memory (oneDNN, issue 6035); give it more channels, or pool"
            )
        if isinstance(part, _BatchNorm) and (part.momentum is None or part.running_mean is None):
            raise UserError(f"{where}: expected running statistics with a fixed momentum")
        for kind, parameter in part.named_parameters(recurse=False):
            if parameter.dtype != torch.float32:
                raise UserError(f"{where} has the parameter {kind} of {parameter.dtype}; expected float32")
        for kind, value in vars(part).items():
            if isinstance(value, Tensor) and value.dim() and f"{kind}_orig" not in part._parameters:
                raise UserError(
                    f"{where} holds the tensor {kind}, which is neither parameter nor buffer: use "
                    "register_buffer (or torch.nn.utils.parametrizations, where PyTorch has put it there)"
                )


def _miscomputed(part: nn.Conv2d) -> bool:
    """Whether oneDNN's AVX kernels corrupt memory for images in channels-last format."""
    strided = max(part.stride) > 1 and max(part.kernel_size) == 1
    return strided and part.in_channels // part.groups < _BLOCK


def compare(
    whole: nn.Module, network: Network, names: Mapping[str, str], fixed: Mapping[str, Tensor], x: Tensor
) -> None:
    """Raise UserError for a network that does not compute what its module does.

    Args:
        whole: the module, with other initial values than those that the network was made from.
        names: what it calls the network's tensors.
        fixed: its buffers that are no tensors of the network, as another call has made them.
        x: a batch.
    """
    state = tensors_of(whole, every_name=True)
    for name, tensor in fixed.items():
        if not torch.equal(tensor, state[name]):
            raise UserError(f"{_buffer(whole, name)} is random: expected a persistent one of floats")
    shapes = network.shapes()
    params = {key: state[name].detach().clone().view(shapes[key]) for key, name in names.items()}
    for training in (False, True):
        module = copy.deepcopy(whole).train(training)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(1)
            expected = module(x)
            found = network.apply(params, x, dropout=no_dropout if training else None)
        if not (isinstance(expected, Tensor) and expected.shape == found.shape) or (
            not _close(expected, found) and not training
        ):
            raise UserError(
                f"its output is not that of its children {', '.join(dict(whole.named_children()))} fed one "
                "after the other; give it children that are (nn.ReLU, nn.MaxPool2d and others are modules, "
                "too), with tensors that are parameters or buffers"
            )
        if not _close(expected, found):
            raise UserError(
                "its output in training mode is random, or not that of its children one after the other"
            )
        after = tensors_of(module, every_name=True)
        for name, tensor in fixed.items():
            if after[name].shape != tensor.shape or not torch.equal(after[name], tensor):
                raise UserError(f"{_buffer(whole, name)} is changed: expected a persistent one of floats")
        for key, name in names.items():
            if not _close(after[name].view(shapes[key]), params[key]):
                raise UserError(
                    f"{_buffer(whole, name)} is changed by more than its child, or by an assignment: change "
                    "it in place (copy_, mul_, add_), in one split point"
                )


def _buffer(whole: nn.Module, name: str) -> str:
    """A buffer in words."""
    where, _, own = name.rpartition(".")
    part = whole.get_submodule(where)
    return f"'{where}' ({type(part).__name__}): its tensor {own} of {getattr(part, own).dtype}"


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5)


def no_dropout(shape: tuple[int, ...], rate: float) -> Tensor:
    """Masks that drop nothing."""
    return torch.ones(shape)
