"""Networks made of any `torch.nn.Module`.

The module is cut where its split points say, and each piece becomes a layer that takes its tensors from a
dictionary by `torch.func.functional_call`. A fully connected piece becomes a `Linear`, so that methods can
reduce it, keep it or put another in its place.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from pfl_benchmark.errors import UserError, nearest
from pfl_benchmark.models.layers import DropoutSource, Layer, Linear
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.normalisation import COUNTED

Make = Callable[[], nn.Module]  # the whole module with fresh initial values

_BLOCK = 16  # channels that AVX-512 kernels take at once

# Of each thread: a call puts its tensors into the module for as long as it takes.
_threads = threading.local()


class Chain(nn.Sequential):
    """Modules that are fed one after the other; a fully connected one flattens images [B, C, H, W]."""

    def forward(self, x: Tensor) -> Tensor:
        for part in self:
            x = part(x.flatten(1) if x.dim() == 4 and _begins_linear(part) else x)
        return x


@dataclass(frozen=True)
class ModuleLayer(Layer):
    """A piece of a module, with the module's own initial values.

    Tensors are called ``<layer>.<name in the module's state_dict>``.
    """

    module: Chain  # what to compute; it is on the `meta` device and holds no values
    make: Make = field(repr=False)

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}

    @cached_property
    def _normalisations(self) -> dict[str, nn.Module]:
        return {name: part for name, part in self.module.named_modules() if isinstance(part, _BatchNorm)}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {f"{self.name}.{name}": tuple(tensor.shape) for name, tensor in self._tensors.items()}

    @property
    def fan_in(self) -> int:
        return 1  # of no use: `draw` is the module's own

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The module's own initial values."""
        return _drawn(self.make, {key: key.partition(".")[2] for key in self.shapes()}, rng)

    @cached_property
    def buffers(self) -> tuple[str, ...]:
        """Buffers, and parameters that the module has frozen."""
        return tuple(f"{self.name}.{name}" for name, t in self._tensors.items() if not t.requires_grad)

    @cached_property
    def normalisation(self) -> tuple[str, ...]:
        starts = tuple(f"{name}." for name in self._normalisations)
        return tuple(f"{self.name}.{name}" for name in self._tensors if name.startswith(starts))

    @cached_property
    def not_stackable(self) -> str:
        parts = self.module.modules()
        counted = any(isinstance(part, _NormBase) and part.running_mean is not None for part in parts)
        return COUNTED if counted else ""

    @cached_property
    def made_of(self) -> tuple[type, ...]:
        return (type(self), *dict.fromkeys(type(part) for part in self.module.modules()))

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        return functional_call(self._own(dropout is not None), self._given(params), (x,))

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        module = self._own(dropout is not None)
        return vmap(lambda own, batch: functional_call(module, own, (batch,)))(self._given(params), x)

    def _given(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: params[f"{self.name}.{name}"] for name in self._tensors}

    def _own(self, training: bool) -> nn.Module:
        """This thread's copy of the module."""
        copies = vars(_threads).setdefault("copies", WeakKeyDictionary())
        if self.module not in copies:
            copies[self.module] = copy.deepcopy(self.module)
        module = copies[self.module]
        return module if module.training == training else module.train(training)


@dataclass(frozen=True)
class ModuleLinear(Linear):
    """A fully connected layer of a module, with the module's own initial values."""

    make: Make = field(kw_only=True, repr=False)

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The module's own initial values."""
        return _drawn(self.make, {key: key for key in self.shapes()}, rng)


def _drawn(make: Make, names: Mapping[str, str], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Initial values of a module made anew, by their names in it.

    PyTorch's generator on the CPU draws them, seeded by `rng`: they are the same on every device, but may
    differ between versions of PyTorch.
    """
    state = _made(make, int(rng.integers(2**63))).state_dict()
    return {key: state[name].numpy().astype(np.float32) for key, name in names.items()}


def _made(make: Make, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def network_from_module(make: Make, splits: Sequence[str], sample: tuple[int, ...]) -> Network:
    """The network that computes what a module does.

    The module has to feed its children one after the other, in the order in which it holds them, with
    nothing but a flattening in between; a child may do what it likes. That is tried out once, on noise.

    Args:
        make: makes the module, with its initial values; equal but for them at every call.
        splits: children at which a layer of the network begins, and the layer's name; what follows a child
            up to the next split point belongs to its layer, and to the first what comes before it. The last
            one is a lone `nn.Linear`.
        sample: shape of an input.

    Raises:
        UserError: that cannot be done with this module; says why.
    """
    whole = _made(make, 0)
    pieces = _pieces(whole, splits)
    _check(whole, pieces)
    for part in whole.modules():
        if isinstance(part, _NormBase):
            part.num_batches_tracked = None  # of no use with a fixed momentum
        if isinstance(getattr(part, "inplace", None), bool):
            setattr(part, "inplace", False)  # noqa: B010  # the input of a layer may be needed again
    x = torch.randn(2, *sample, generator=torch.Generator().manual_seed(0))
    layers, inputs = [], x.to("meta")
    with torch.no_grad():
        for name, piece in pieces.items():
            empty = copy.deepcopy(piece).to("meta")
            layers.append(_layer(name, empty, make, inputs.dim()))
            inputs = _fed(name, empty.eval(), inputs)
        network = Network(tuple(layers))
        _compare(whole, network, x)
    return network


def _fed(name: str, piece: Chain, inputs: Tensor) -> Tensor:
    """What a piece makes of its inputs; UserError: it cannot take them, which names the part that cannot."""
    x = inputs
    for part_name, part in piece.named_children():
        x = x.flatten(1) if x.dim() == 4 and _begins_linear(part) else x
        try:
            x = part(x)
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            inner = next((p for p in part.modules() if isinstance(p, nn.Linear)), None)
            where, shape = f"'{part_name}' ({type(part).__name__})", " x ".join(map(str, x.shape[1:]))
            if inner is not None and x.dim() == 4:
                raise UserError(
                    f"{where} of the layer '{name}' cannot take {shape} values, its first nn.Linear takes "
                    f"{inner.in_features}: put nn.Flatten() before that, and count what comes out of it"
                ) from error
            reason = " ".join(str(error).split())
            raise UserError(
                f"{where} of the layer '{name}' cannot take {shape} values: {reason:.120}"
            ) from error
    return x


def _pieces(whole: nn.Module, splits: Sequence[str]) -> dict[str, Chain]:
    """The children of each split point; UserError where these are no children in order from the first."""
    children = dict(whole.named_children())
    for name in splits:
        if name not in children:
            known = ", ".join(children) or "none"
            raise UserError(f"the split point '{name}' is no child{nearest(name, children)}; known: {known}")
    ordered = [name for name in children if name in splits]
    first = next((name for name, child in children.items() if any(True for _ in child.parameters())), None)
    if ordered != list(splits) or first not in splits[:1]:
        raise UserError(
            f"the split points are {', '.join(splits) or 'none'}; expected children in the order "
            f"{', '.join(children)}, from the first with parameters on, each once"
        )
    groups: dict[str, OrderedDict[str, nn.Module]] = {name: OrderedDict() for name in splits}
    current = splits[0]  # to which a flattening before it belongs
    for name, child in children.items():
        current = name if name in splits else current
        groups[current][name] = child
    return {name: Chain(group) for name, group in groups.items()}


def _check(whole: nn.Module, pieces: Mapping[str, Chain]) -> None:
    """Refuse what no layer could hold or compute; a UserError says what."""
    homes: dict[int, str] = {}
    for name, piece in pieces.items():
        if not any(True for _ in piece.parameters()):
            raise UserError(f"the split point '{name}' names no parameters; leave it out")
        for parameter in piece.parameters():
            if homes.setdefault(id(parameter), name) != name:
                raise UserError(f"'{homes[id(parameter)]}' and '{name}' share a parameter; make one of them")
    last = [*pieces][-1]
    linear = _linear(last, pieces[last])
    if linear is None or linear[1]:
        raise UserError(
            f"the last split point '{last}' must be a lone nn.Linear with bias, which gives the logits"
        )
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
        for kind, buffer in part.named_buffers(recurse=False):
            if not buffer.is_floating_point() and not isinstance(part, _NormBase):
                raise UserError(f"{where} has the buffer {kind} of {buffer.dtype}; expected floating point")


def _miscomputed(part: nn.Conv2d) -> bool:
    """Whether oneDNN's AVX kernels corrupt memory for images in channels-last format."""
    strided = max(part.stride) > 1 and max(part.kernel_size) == 1
    return strided and part.in_channels // part.groups < _BLOCK


def _linear(name: str, piece: Chain) -> tuple[nn.Linear, bool] | None:
    """What a `Linear` needs to compute a piece: a fully connected layer, and whether ReLU follows."""
    parts = [part for part in piece if not isinstance(part, (nn.Flatten, nn.Identity))]
    first, kinds = parts[0], [type(part) for part in parts[1:]]
    if type(first) is nn.Linear and first.bias is not None and kinds in ([], [nn.ReLU]):
        return (first, bool(kinds)) if getattr(piece, name) is first else None
    return None


def _begins_linear(module: nn.Module) -> bool:
    """Whether the first thing that a chain of modules does is a matrix product with its input."""
    while isinstance(module, nn.Sequential) and len(module):
        module = module[0]
    return isinstance(module, nn.Linear)


def _layer(name: str, piece: Chain, make: Make, dim: int) -> Layer:
    """A piece as a layer for inputs of `dim` axes: a `Linear` would flatten the tokens of a text."""
    linear = _linear(name, piece)
    if linear is not None and dim != 3:
        found, activation = linear
        return ModuleLinear(name, found.in_features, found.out_features, activation, make=make)
    return ModuleLayer(name, piece, make)


def _compare(whole: nn.Module, network: Network, x: Tensor) -> None:
    """Raise UserError for a network that does not compute what its module does."""
    state = whole.state_dict()
    names = {
        key: key.partition(".")[2] if isinstance(layer, ModuleLayer) else key
        for layer in network.layers
        for key in layer.shapes()
    }
    params = {key: state[name].clone() for key, name in names.items()}
    for training in (False, True):
        module = copy.deepcopy(whole).train(training)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            expected = module(x)
            found = network.apply(params, x, dropout=_no_dropout if training else None)
        if isinstance(expected, Tensor) and expected.shape == found.shape:
            if torch.allclose(expected, found, rtol=1e-3, atol=1e-5):
                continue
            if training:
                raise UserError(
                    "its output in training mode is random, or not that of its children one after the other"
                )
        raise UserError(
            f"its output is not that of its children {', '.join(dict(whole.named_children()))} fed one after "
            "the other; give it children that are (nn.ReLU, nn.MaxPool2d and others are modules, too)"
        )


def _no_dropout(shape: tuple[int, ...], rate: float) -> Tensor:
    return torch.ones(shape)
