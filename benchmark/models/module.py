"""Networks made of any `torch.nn.Module`.

The module is cut where its split points say, and each piece becomes a layer that takes its tensors from a
dictionary by `torch.func.functional_call`. A fully connected piece becomes a `Linear`, so that methods can
reduce it, keep it or put another in its place.
"""

from __future__ import annotations

import copy
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.parameter import is_lazy

from pfl_benchmark.errors import UserError, nearest
from pfl_benchmark.models.layers import DropoutSource, Layer, Linear
from pfl_benchmark.models.module_checks import (
    check_parts,
    check_sharing,
    compare,
    fixed_of,
    no_dropout,
    tensors_of,
)
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.normalisation import COUNTED

Make = Callable[[], nn.Module]  # the whole module with fresh initial values

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

    Tensors are called ``<layer>.<name in the module's state_dict>``. One that the module uses in several
    places is there once, under its first name; a number without dimensions is a vector of one.
    """

    module: Chain  # what to compute; it is on the `meta` device and holds no values
    make: Make = field(repr=False)
    example: Tensor = field(repr=False, compare=False)  # an input, on the `meta` device
    fixed: Mapping[str, Tensor] = field(repr=False, compare=False)  # buffers that are the same in all models

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        return {name: t for name, t in tensors_of(self.module).items() if name not in self.fixed}

    @cached_property
    def _normalisations(self) -> dict[str, nn.Module]:
        return {name: part for name, part in self.module.named_modules() if isinstance(part, _BatchNorm)}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {f"{self.name}.{name}": tuple(tensor.shape) or (1,) for name, tensor in self._tensors.items()}

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
        if any(isinstance(part, _NormBase) and part.running_mean is not None for part in parts):
            return COUNTED
        if self._reads_values:
            return f"{self._reads_values} takes decisions by values of tensors"
        params = {key: torch.empty(shape, device="meta") for key, shape in self.shapes().items()}
        if problem := self._problem(lambda: self.apply(params, self.example, no_dropout)):
            return problem
        for name in self.buffers:
            if params[name]._version:
                return f"'{name.partition('.')[2]}' is changed in training, also of clients without a batch"
        stacked = {
            key: torch.empty(2, *shape, device="meta", requires_grad=key not in self.buffers)
            for key, shape in self.shapes().items()
        }
        x = torch.stack([self.example] * 2).requires_grad_(self.example.is_floating_point())
        return self._problem(lambda: self.apply_stacked(stacked, x, no_dropout).sum().backward())

    @cached_property
    def _reads_values(self) -> str:
        """The part of the module that cannot be tried out on shapes alone, in words; empty if none is."""
        given = self._given({key: torch.empty(shape, device="meta") for key, shape in self.shapes().items()})
        modes = (False, True)
        return self._problem(lambda: [self._call(self._own(t), given, self.example) for t in modes], True)

    def _problem(self, attempt: Callable[[], object], named: bool = False) -> str:
        """Which part of the module an attempt fails in, and why unless only `named`; empty if it does not."""
        try:
            attempt()
        except Exception as error:  # whatever a module makes of tensors without values, or of several models
            names = {id(part): name for name, part in self._own(False).named_modules()}
            frames = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
            part = [part for part in [self._own(False), *frames] if id(part) in names][-1]
            where = f"'{names[id(part)] or self.name}' ({type(part).__name__})"
            return where if named else f"{where} has no stacked form ({str(error).splitlines()[0]:.90})"
        return ""

    @cached_property
    def made_of(self) -> tuple[type, ...]:
        return (type(self), *dict.fromkeys(type(part) for part in self.module.modules()))

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        module = self._own(dropout is not None)
        if x.is_meta and self._reads_values:  # only the output's shape is asked for: any values will do
            zeros = {key: torch.zeros(shape) for key, shape in self.shapes().items()}
            return self._call(module, self._given(zeros), torch.zeros_like(x, device="cpu")).to("meta")
        return self._call(module, self._given(params), x)

    def apply_stacked(
        self,
        params: Mapping[str, Tensor],
        x: Tensor,
        dropout: DropoutSource | None = None,
        common: Collection[str] = (),
    ) -> Tensor:
        """As `Layer.apply_stacked`; the tensors named `common` are those of all models, and not stacked."""
        call, given = partial(self._call, self._own(dropout is not None)), self._given(params)
        axes = {name: None if f"{self.name}.{name}" in common else 0 for name in given}
        return vmap(call, in_dims=(axes, 0))(given, x)

    def stacking_problem(self, apply_stacked: Callable[[Tensor], Tensor]) -> str:
        """Why another way of computing two models at once does not work, in words; empty if it does."""
        if self._reads_values:
            return f"{self._reads_values} takes decisions by values of tensors"
        x = torch.stack([self.example] * 2).requires_grad_(self.example.is_floating_point())
        return self._problem(lambda: apply_stacked(x).sum().backward())

    def _call(self, module: nn.Module, own: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(module, {**own, **self._fixed_on(x.device)}, (x,))

    def _given(self, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        given = {name: params[f"{self.name}.{name}"] for name in self._tensors}
        return given | {name: given[name].squeeze(-1) for name in self._numbers}

    @cached_property
    def _numbers(self) -> list[str]:
        return [name for name, tensor in self._tensors.items() if not tensor.dim()]

    def _fixed_on(self, device: torch.device) -> dict[str, Tensor]:
        if device not in self._copies:
            self._copies[device] = {name: tensor.to(device) for name, tensor in self.fixed.items()}
        return self._copies[device]

    @cached_property
    def _copies(self) -> dict[torch.device, dict[str, Tensor]]:
        return {}

    def _own(self, training: bool) -> nn.Module:
        """This thread's copy of the module."""
        copies = vars(_threads).setdefault("copies", WeakKeyDictionary())
        if self.module not in copies:
            copies[self.module] = copy.deepcopy(self.module)
        module = copies[self.module]
        return module if module.training == training else module.train(training)


@dataclass(frozen=True)
class ModuleLinear(Linear):
    """A fully connected layer of a module, with the module's own initial values.

    inside: what a package's module calls it, where that is another name.
    """

    make: Make = field(kw_only=True, repr=False)
    inside: str = field(default="", kw_only=True, repr=False)

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The module's own initial values."""
        return _drawn(self.make, {key: key for key in self.shapes()}, rng)


def _drawn(make: Make, names: Mapping[str, str], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Initial values of a module made anew, by their names in it.

    PyTorch's generator on the CPU draws them, seeded by `rng`: they are the same on every device, but may
    differ between versions of PyTorch.
    """
    made = _made(make, int(rng.integers(2**63)))
    state = {name: tensor.detach() for name, tensor in tensors_of(made, every_name=True).items()}
    return {key: np.atleast_1d(state[name].numpy().astype(np.float32)) for key, name in names.items()}


def _made(make: Make, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def _shaped(make: Make, sample: tuple[int, ...]) -> nn.Module:
    """A module of which lazy layers have found their shapes."""
    module = make().eval()
    with torch.no_grad():
        module(torch.zeros(1, *sample))
    return module.train()


def _ready(make: Make, seed: int) -> nn.Module:
    """A module as its layers compute it."""
    whole = _made(make, seed)
    for part in whole.modules():
        if isinstance(part, _NormBase):
            part.num_batches_tracked = None  # of no use with a fixed momentum
        if isinstance(getattr(part, "inplace", None), bool):
            setattr(part, "inplace", False)  # noqa: B010  # the input of a layer may be needed again
    return whole


def _emptied(piece: Chain) -> Chain:
    """A copy on the `meta` device; tensors that are one stay one, as `Module.to` would not have them."""
    empty: dict[int, object] = {}
    for tensor in tensors_of(piece).values():
        new = torch.empty_like(tensor, device="meta", requires_grad=False)
        own = isinstance(tensor, nn.Parameter)
        empty[id(tensor)] = nn.Parameter(new, tensor.requires_grad) if own else new
    return copy.deepcopy(piece, empty)


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
    if any(is_lazy(tensor) for tensor in tensors_of(whole).values()):
        make = partial(_shaped, make, sample)
        whole = _made(make, 0)
    pieces = _pieces(whole, splits)
    check_sharing(pieces)
    last = [*pieces][-1]
    linear = _linear(last, pieces[last], last=True)
    if linear is None or linear[1]:
        raise UserError(
            f"the last split point '{last}' must be a lone nn.Linear that is trained: it gives the logits"
        )
    check_parts(whole)
    whole, other = _ready(make, 0), _ready(make, 1)
    pieces = _pieces(whole, splits)
    x = torch.randn(2, *sample, generator=torch.Generator().manual_seed(0))
    layers, inputs = [], x
    for name, piece in pieces.items():
        layers.append(_layer(name, piece, make, inputs, name == last))
        with torch.no_grad():
            inputs = _fed(name, copy.deepcopy(piece).eval(), inputs)
    network = Network(tuple(layers))
    # By values that the layers have not seen: what they hold beside their tensors would tell.
    compare(other, network, _names(network), fixed_of(whole), x)
    return network


def split_points(module: nn.Module) -> list[str]:
    """The children with parameters, normalisation aside."""
    return [
        name
        for name, child in module.named_children()
        if any(True for _ in child.parameters())
        and not isinstance(child, (_NormBase, nn.LayerNorm, nn.GroupNorm))
    ]


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
        if not isinstance(x, Tensor):
            raise UserError(
                f"'{part_name}' ({type(part).__name__}) of the layer '{name}' gives a {type(x).__name__}, "
                "and the next child takes one tensor; put both into a child of their own"
            )
    return x


def _names(network: Network) -> dict[str, str]:
    """What the module calls the tensors of its network."""
    return {
        key: key.partition(".")[2] if isinstance(layer, ModuleLayer) else key
        for layer in network.layers
        for key in layer.shapes()
    }


def _pieces(whole: nn.Module, splits: Sequence[str]) -> dict[str, Chain]:
    """The children of each split point; UserError where these are no children in order from the first."""
    children = dict(whole.named_children())
    for name in splits:
        if name not in children:
            known = ", ".join(children) or "none"
            raise UserError(f"the split point '{name}' is no child{nearest(name, children)}; known: {known}")
    ordered = [name for name in children if name in splits]
    trained = [name for name, child in children.items() if any(True for _ in child.parameters())]
    if ordered != list(splits) or not {*trained[:1], *split_points(whole)[:1]}.intersection(splits[:1]):
        raise UserError(
            f"the split points are {', '.join(splits) or 'none'}; expected children in the order "
            f"{', '.join(children)}, from the first with parameters (normalisation aside) on, each once"
        )
    groups: dict[str, OrderedDict[str, nn.Module]] = {name: OrderedDict() for name in splits}
    current = splits[0]  # to which a flattening or normalisation before it belongs
    for name, child in children.items():
        current = name if name in splits else current
        groups[current][name] = child
    return {name: Chain(group) for name, group in groups.items()}


def _linear(name: str, piece: Chain, last: bool) -> tuple[nn.Linear, bool] | None:
    """What a `Linear` needs to compute a piece: a trained fully connected layer, and whether ReLU follows.

    Only as the last one it may be without bias.
    """
    parts = [part for part in piece if not isinstance(part, (nn.Flatten, nn.Identity))]
    first, kinds = parts[0], [type(part) for part in parts[1:]]
    if type(first) is not nn.Linear or getattr(piece, name) is not first or kinds not in ([], [nn.ReLU]):
        return None
    names = [name for name, tensor in tensors_of(first).items() if tensor.requires_grad]
    return (first, bool(kinds)) if names == ["weight", "bias"] or (last and names == ["weight"]) else None


def _begins_linear(module: nn.Module) -> bool:
    """Whether the first thing that a chain of modules does is a matrix product with its input."""
    while isinstance(module, nn.Sequential) and len(module):
        module = module[0]
    return isinstance(module, nn.Linear)


def _layer(name: str, piece: Chain, make: Make, x: Tensor, last: bool) -> Layer:
    """A piece as a layer for inputs such as `x`: a `Linear` would flatten the tokens of a text."""
    linear = _linear(name, piece, last)
    if linear is not None and x.dim() != 3:
        found, activation = linear
        sizes, bias = (found.in_features, found.out_features), found.bias is not None
        return ModuleLinear(name, *sizes, activation, bias=bias, make=make)
    return ModuleLayer(name, _emptied(piece), make, x.to("meta"), fixed_of(piece))
