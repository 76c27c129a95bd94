"""Layers of which only some tensors train; the others are constants, common to all models of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.models.layers import DropoutSource, Layer, Params
from pfl_benchmark.models.module import ModuleLayer
from pfl_benchmark.models.module_checks import no_dropout
from pfl_benchmark.models.network import Network, placed


def uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A matrix [outputs, inputs], uniform on ±1/sqrt(inputs): Kaiming's with a = √5, as PyTorch draws."""
    bound = shape[-1] ** -0.5
    return rng.uniform(-bound, bound, size=shape).astype(np.float32)


@dataclass(frozen=True)
class LowRankUpdate:
    """LoRA of one tensor: ``W + scale · B A``, where W is read as a matrix [outputs, inputs]."""

    of: str
    shape: tuple[int, ...]  # of the tensor
    rank: int
    scale: float
    kind: str = "lora"

    @property
    def names(self) -> tuple[str, str]:
        """Of the factors A and B."""
        return f"{self.of}.{self.kind}_a", f"{self.of}.{self.kind}_b"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """A is [rank, inputs], B is [outputs, rank]."""
        outputs, inputs = matrix(self.shape)
        first, second = self.names
        return {first: (self.rank, inputs), second: (outputs, self.rank)}

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """A uniform, B zero: the layer begins as it was (Hu et al., ICLR 2022; microsoft/LoRA)."""
        (first, a), (second, b) = self.shapes().items()
        return {first: uniform(rng, a), second: np.zeros(b, np.float32)}

    def added(self, weight: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """The tensor with its update; stacked [m, ...] where the factors are."""
        first, second = (params[name] for name in self.names)
        update = self.scale * (second @ first)
        return weight + update.reshape(*update.shape[:-2], *self.shape)


def matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Outputs and inputs of a weight; of a kernel, all that an output sums over are inputs."""
    inputs = 1
    for size in shape[1:]:
        inputs *= size
    return shape[0], inputs


@dataclass(frozen=True)
class Bottleneck(Layer):
    """A layer and an adapter behind it: ``h + up(relu(down(h)))`` on features, tokens or channels h.

    The matrix `up` begins at zero, and so the layer as it was (Houlsby et al., ICML 2019).
    """

    base: Layer
    width: int  # of h
    units: int
    axis: int  # of h in the layer's output, counted from the last one

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {**self.base.shapes(), **self.own()}

    def own(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what is new."""
        kinds = {"down.weight": (self.units, self.width), "down.bias": (self.units,)}
        kinds |= {"up.weight": (self.width, self.units), "up.bias": (self.width,)}
        return {f"{self.name}.adapter.{kind}": shape for kind, shape in kinds.items()}

    @property
    def fan_in(self) -> int:
        return self.base.fan_in

    @property
    def buffers(self) -> tuple[str, ...]:
        return self.base.buffers

    @property
    def normalisation(self) -> tuple[str, ...]:
        return self.base.normalisation

    @property
    def not_stackable(self) -> str:
        return self.base.not_stackable

    @property
    def made_of(self) -> tuple[type, ...]:
        return (type(self), *self.base.made_of)

    @property
    def drops(self) -> bool:
        return self.base.drops

    @property
    def plain(self) -> Layer:
        return self.base

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {**self.base.draw(rng), **self.draw_own(rng)}

    def draw_own(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """What is new: `down` uniform, all else zero."""
        values = {name: np.zeros(shape, np.float32) for name, shape in self.own().items()}
        name = f"{self.name}.adapter.down.weight"
        return {**values, name: uniform(rng, self.own()[name])}

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        x = self.base.apply(params, x, dropout)
        down, down_bias, up, up_bias = (params[name] for name in self.own())
        hidden = F.relu(F.linear(x.movedim(self.axis, -1), down, down_bias))
        return x + F.linear(hidden, up, up_bias).movedim(-1, self.axis)

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        return self.after(params, self.base.apply_stacked(params, x, dropout))

    def after(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The adapter on the layer's output for m models."""
        down, down_bias, up, up_bias = (params[name] for name in self.own())
        last = x.movedim(self.axis, -1)
        rows = last.flatten(1, -2)
        hidden = F.relu(torch.baddbmm(down_bias.unsqueeze(1), rows, down.transpose(1, 2)))
        found = torch.baddbmm(up_bias.unsqueeze(1), hidden, up.transpose(1, 2))
        return x + found.view(last.shape).movedim(-1, self.axis)


@dataclass(frozen=True)
class Frozen(Layer):
    """A layer of which only some tensors train, and low-rank updates of others.

    `shapes` has what trains alone. All else is in `constants`, which `begin` puts there: it is
    neither sent nor kept nor stacked. What is frozen is in evaluation mode: batch normalisation keeps and
    uses the statistics that it has.
    """

    base: Layer
    trained: tuple[str, ...] = ()  # names of the base's tensors that train as they are
    updates: tuple[LowRankUpdate, ...] = ()
    done: bool = False  # data hold its outputs already: it hands its input on
    constants: Mapping[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = self.base.shapes()
        found = {name: shapes[name] for name in shapes if name in self.trained}
        for update in self.updates:
            found |= update.shapes()
        return found

    @property
    def still(self) -> bool:
        return not (self.trained or self.updates)

    @property
    def fan_in(self) -> int:
        return self.base.fan_in

    @property
    def normalisation(self) -> tuple[str, ...]:
        return tuple(name for name in self.base.normalisation if name in self.trained)

    @property
    def made_of(self) -> tuple[type, ...]:
        return (type(self), *self.base.made_of)

    @property
    def drops(self) -> bool:
        return self.base.drops and not self.done

    @property
    def plain(self) -> Layer:
        return self.base.plain

    @property
    def thawed(self) -> Layer:
        return self.base

    @cached_property
    def not_stackable(self) -> str:
        inner = self.plain
        if self.still and not inner.drops:
            return ""
        if not isinstance(inner, ModuleLayer):
            return inner.not_stackable
        shapes = self.shapes()
        params = {name: torch.empty(2, *s, device="meta", requires_grad=True) for name, s in shapes.items()}
        return inner.stacking_problem(lambda x: self.apply_stacked(params, x, no_dropout))

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        drawn = {**self.plain.draw(rng), **self.draw_own(rng)}
        return {name: drawn[name] for name in self.shapes()}

    def draw_own(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """What the plain layer does not have."""
        found = self.base.draw_own(rng) if isinstance(self.base, Bottleneck) else {}
        for update in self.updates:
            found |= update.draw(rng)
        return found

    def merged(self, params: Mapping[str, Tensor]) -> Params:
        """All tensors of the layer that is whole: constants, what trains, and updates added to their own.

        Of stacked parameters those that no model has for itself are not stacked.
        """
        found = {**self.constants, **{name: params[name] for name in self.trained}}
        for update in self.updates:
            found[update.of] = update.added(found[update.of], params)
        return found

    @cached_property
    def common(self) -> set[str]:
        """Names of the tensors that are the same in all models."""
        return {*self.base.shapes()} - {*self.trained, *(update.of for update in self.updates)}

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        if self.done:
            return x
        return self.base.apply(self._here(x).merged(params), x, dropout if self.drops else None)

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        if self.done:
            return x
        tensors = self._here(x).merged(params)
        return _stacked(self.base, tensors, x, dropout if self.drops else None, self.common)

    def _here(self, x: Tensor) -> Frozen:
        """The layer with constants that fit an input; one without values asks for shapes alone."""
        if not x.is_meta:
            return self
        shapes = self.base.shapes().items()
        return replace(self, constants={name: torch.empty(shape, device="meta") for name, shape in shapes})


def _stacked(
    layer: Layer,
    tensors: Mapping[str, Tensor],
    x: Tensor,
    dropout: DropoutSource | None,
    common: Collection[str],
) -> Tensor:
    """`Layer.apply_stacked` where the tensors named `common` are not stacked."""
    if isinstance(layer, Bottleneck):
        return layer.after(tensors, _stacked(layer.base, tensors, x, dropout, common))
    if dropout is None and layer.shapes().keys() <= {*common}:  # one model: as one batch
        return layer.apply(tensors, x.flatten(0, 1)).unflatten(0, x.shape[:2])
    if isinstance(layer, ModuleLayer):
        return layer.apply_stacked(tensors, x, dropout, common)
    whole = {name: t.expand(len(x), *t.shape) if name in common else t for name, t in tensors.items()}
    return layer.apply_stacked(whole, x, dropout)


def low_rank_updates(network: Network) -> list[LowRankUpdate]:
    """What LoRA adds to the network's weights; empty without LoRA."""
    return [update for layer in network.layers if isinstance(layer, Frozen) for update in layer.updates]


def with_second_lora(network: Network, kind: str, share: float) -> Network:
    """Add to each LoRA another one of the same rank: ``W + (1 - share) · first + share · second``.

    Args:
        kind: the second one's factors are called by it, as in ``fc1.weight.KIND_a``.
    """
    layers: list[Layer] = []
    for layer in network.layers:
        if isinstance(layer, Frozen):
            first = [replace(update, scale=(1 - share) * update.scale) for update in layer.updates]
            second = [replace(update, scale=share * update.scale, kind=kind) for update in layer.updates]
            layer = replace(layer, updates=(*first, *second))
        layers.append(layer)
    return Network(tuple(layers))


def begin(
    network: Network,
    rng: np.random.Generator,
    device: torch.device | str = "cpu",
    given: Mapping[str, Tensor] = MappingProxyType({}),
    layout: Callable[[Tensor], Tensor] = lambda tensor: tensor,
) -> tuple[Network, Params]:
    """The network with its constants, and the initial parameters of what trains.

    What the plain network has is drawn as without adapters.

    Args:
        given: tensors that stand for drawn ones, by name.
        layout: brings constants into the memory format in which they are used.
    """
    values = {**network.plain.init(rng, device), **given}
    layers: list[Layer] = []
    for layer in network.layers:
        if isinstance(layer, Frozen):
            values |= placed(layer.draw_own(rng), device)
            names = layer.plain.shapes().keys() - {*layer.trained}
            layer = replace(layer, constants={name: layout(values[name]) for name in names})
        layers.append(layer)
    return Network(tuple(layers)), {name: values[name] for name in network.shapes()}


def merged(network: Network, params: Mapping[str, Tensor]) -> tuple[Params, Params]:
    """Stacked parameters [m, ...] as those of ``network.thawed``: each model's, and those common to all.

    The latter are not stacked. What there is beside the network stays as it is.
    """
    own: Params = {**params}
    common: Params = {}
    for layer in network.layers:
        if isinstance(layer, Frozen):
            own = {name: tensor for name, tensor in own.items() if name not in layer.shapes()}
            for name, tensor in layer.merged(params).items():
                (common if name in layer.common else own)[name] = tensor
    return own, common
