"""A network: an ordered tuple of named layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pfl_benchmark.models.layers import Dense, DropoutSource, Layer, Params
from pfl_benchmark.models.recurrent import Recurrent


@dataclass(frozen=True)
class Network:
    """An ordered tuple of layers; every method takes and returns plain dictionaries of tensors."""

    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        for name in self.names:
            if "." in name or self.names.count(name) > 1:
                raise ValueError(f"layer name {name!r}: expected one without a dot, and each only once")

    @property
    def names(self) -> tuple[str, ...]:
        """Layer names from input to output: the split points."""
        return tuple(layer.name for layer in self.layers)

    @property
    def splittable(self) -> tuple[str, ...]:
        """Names of the fully connected layers, which a method may make personal one after the other."""
        return tuple(
            layer.name for layer in self.layers if isinstance(layer.plain, Dense) and not layer.still
        )

    @property
    def is_recurrent(self) -> bool:
        """True for networks that read sequences."""
        return any(isinstance(layer.plain, Recurrent) for layer in self.layers)

    def index(self, name: str) -> int:
        return self.names.index(name)

    def layer(self, name: str) -> Layer:
        return self.layers[self.index(name)]

    def tail(self, count: int) -> tuple[str, ...]:
        """Names of the last `count` layers."""
        return self.names[len(self.names) - count :]

    def shapes(self, layers: Iterable[str] | None = None) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors, or of those of the named layers."""
        wanted = set(self.names if layers is None else layers)
        return {
            key: shape
            for layer in self.layers
            if layer.name in wanted
            for key, shape in layer.shapes().items()
        }

    def keys(self, layers: Iterable[str] | None = None) -> list[str]:
        """Tensor names of the named layers (default: all), in network order."""
        return list(self.shapes(layers))

    @property
    def buffers(self) -> set[str]:
        """Names of all tensors that have no gradient (`Layer.buffers`)."""
        return {name for layer in self.layers for name in layer.buffers}

    @property
    def trainable(self) -> list[str]:
        """Names of all tensors that have a gradient, in network order: all but `buffers`."""
        buffers = self.buffers
        return [name for name in self.keys() if name not in buffers]

    @property
    def normalisation(self) -> set[str]:
        """Names of all tensors of batch normalisation (`Layer.normalisation`)."""
        return {name for layer in self.layers for name in layer.normalisation}

    def count(self, layers: Iterable[str] | None = None) -> int:
        """Number of parameters of the named layers (default: all), buffers included."""
        return sum(math.prod(shape) for shape in self.shapes(layers).values())

    @property
    def size(self) -> int:
        """Number of parameters that a step computes with: all but those of a frozen beginning."""
        moving = [not layer.still for layer in self.layers]
        return Network(self.layers[moving.index(True) :]).thawed.count()

    def init(self, rng: np.random.Generator, device: torch.device | str = "cpu") -> Params:
        """Draw initial parameters, layer by layer (`Layer.draw`).

        NumPy draws those of the layers here, so that they are the same on every device and PyTorch version.
        """
        drawn = {key: values for layer in self.layers for key, values in layer.draw(rng).items()}
        return placed(drawn, device)

    def apply(
        self,
        params: Mapping[str, Tensor],
        x: Tensor,
        start: int = 0,
        stop: int | None = None,
        dropout: DropoutSource | None = None,
    ) -> Tensor:
        """Run layers ``start`` to ``stop`` (exclusive; default: to the end) on the batch `x` [B, ...]."""
        for layer in self.layers[start:stop]:
            x = layer.apply(params, x, dropout)
        return x

    def apply_stacked(
        self,
        params: Mapping[str, Tensor],
        x: Tensor,
        start: int = 0,
        stop: int | None = None,
        dropout: DropoutSource | None = None,
    ) -> Tensor:
        """`apply` for m models at once: stacked parameters [m, ...] and batches `x` [m, B, ...]."""
        for layer in self.layers[start:stop]:
            x = layer.apply_stacked(params, x, dropout)
        return x

    def with_layers(self, changed: Mapping[str, Layer]) -> Network:
        """A copy in which the named layers are replaced."""
        return Network(tuple(changed.get(layer.name, layer) for layer in self.layers))

    @property
    def plain(self) -> Network:
        """The network without adapters, and with all its tensors."""
        return Network(tuple(layer.plain for layer in self.layers))

    @property
    def thawed(self) -> Network:
        """The network with its adapters, and with all its tensors: what saved models are of."""
        return Network(tuple(layer.thawed for layer in self.layers))


def placed(drawn: Mapping[str, np.ndarray], device: torch.device | str) -> Params:
    """Drawn values as tensors on a device."""
    return {key: torch.from_numpy(np.float32(values)).to(device) for key, values in drawn.items()}
