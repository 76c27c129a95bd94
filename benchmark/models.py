"""Layered networks with named split points.

A `Network` is an ordered tuple of named layers (conv1, conv2, fc1, fc2, fc3). It holds no
tensors: parameters live in a plain ``dict[str, Tensor]`` keyed ``"<layer>.<tensor>"``, so that "the last
t layers are personal", "send conv1 and conv2" and "replace fc1 by a rank-r pair" are dictionary
operations, and one description serves one client or a whole stacked cohort.

The image nets are those of FedRep's repository (models/Nets.py, CNNCifar and CNNCifar100), whose sizes
the paper's transmitted shares confirm. Pooling comes before ReLU: the values are the same, the work less.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["NETWORKS", "Conv", "Layer", "Linear", "LowRank", "Network", "Params", "build_network", "cnn"]

Params = dict[str, Tensor]

# Returns the (already scaled) dropout mask of a shape and rate; None stands for evaluation mode.
DropoutSource = Callable[[tuple[int, ...], float], Tensor]


@dataclass(frozen=True)
class Layer(ABC):
    """One named layer: a description without tensors."""

    name: str

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the layer's tensors by full name (``"fc1.weight"``)."""

    @property
    @abstractmethod
    def fan_in(self) -> int:
        """Inputs that one output sums over; it sets the scale of the initial values."""

    @abstractmethod
    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        """Return the layer's output for the batch `x` [B, ...]; `dropout` None means evaluation mode."""

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        """The same for m models at once: stacked parameters [m, ...] and batches `x` [m, B, ...].

        Optional: a layer that does not define it cannot be trained by the executor `stacked`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no stacked form")

    @property
    def stackable(self) -> bool:
        """True if the layer defines `apply_stacked`."""
        return type(self).apply_stacked is not Layer.apply_stacked

    @property
    def drops(self) -> bool:
        """True if the layer is random in training mode."""
        return False


@dataclass(frozen=True)
class Conv(Layer):
    """Square convolution, 2×2 max-pooling, ReLU."""

    channels_in: int
    channels_out: int
    kernel: int = 5
    padding: int = 0

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            f"{self.name}.weight": (self.channels_out, self.channels_in, self.kernel, self.kernel),
            f"{self.name}.bias": (self.channels_out,),
        }

    @property
    def fan_in(self) -> int:
        return self.channels_in * self.kernel**2

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        weight, bias = params[f"{self.name}.weight"], params[f"{self.name}.bias"]
        return F.relu(F.max_pool2d(F.conv2d(x, weight, bias, padding=self.padding), 2))

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        # Patches times kernels as one batched matrix product; on CPUs as fast as a grouped convolution.
        weight, bias = params[f"{self.name}.weight"], params[f"{self.name}.bias"]
        if self.padding:
            x = F.pad(x, [self.padding] * 4)
        windows = x.unfold(3, self.kernel, 1).unfold(4, self.kernel, 1)  # [m, B, C, H', W', k, k]
        models, batch, _, height, width = windows.shape[:5]
        patches = windows.permute(0, 1, 3, 4, 2, 5, 6).reshape(models, batch * height * width, -1)
        kernels = weight.reshape(models, self.channels_out, -1).transpose(1, 2)
        out = torch.baddbmm(bias.unsqueeze(1), patches, kernels).view(models * batch, height, width, -1)
        out = F.relu(F.max_pool2d(out.permute(0, 3, 1, 2), 2))
        return out.reshape(models, batch, *out.shape[1:])


@dataclass(frozen=True)
class _Dense(Layer):
    """What fully connected layers have in common: sizes, activation and dropout."""

    inputs: int
    outputs: int
    activation: bool = True
    dropout: float = 0.0

    @property
    def fan_in(self) -> int:
        return self.inputs

    @property
    def drops(self) -> bool:
        return self.dropout > 0

    def _finish(self, x: Tensor, dropout: DropoutSource | None) -> Tensor:
        if self.activation:
            x = F.relu(x)
        if self.drops and dropout is not None:
            x = x * dropout(tuple(x.shape), self.dropout)
        return x


@dataclass(frozen=True)
class Linear(_Dense):
    """Fully connected layer; flattens its input, applies ReLU unless it is the last layer."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {f"{self.name}.weight": (self.outputs, self.inputs), f"{self.name}.bias": (self.outputs,)}

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        x = F.linear(x.flatten(1), params[f"{self.name}.weight"], params[f"{self.name}.bias"])
        return self._finish(x, dropout)

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        weight, bias = params[f"{self.name}.weight"], params[f"{self.name}.bias"]
        x = torch.baddbmm(bias.unsqueeze(1), x.flatten(2), weight.transpose(1, 2))
        return self._finish(x, dropout)


@dataclass(frozen=True)
class LowRank(_Dense):
    """A `Linear` layer as the product of two factors, ``second @ first``; one bias, no activation between.

    The inner factor carries no bias: only so do the paper's transmitted shares come out (83.8 %).
    """

    rank: int = 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            f"{self.name}.first": (self.rank, self.inputs),
            f"{self.name}.second": (self.outputs, self.rank),
            f"{self.name}.bias": (self.outputs,),
        }

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        inner = F.linear(x.flatten(1), params[f"{self.name}.first"])
        x = F.linear(inner, params[f"{self.name}.second"], params[f"{self.name}.bias"])
        return self._finish(x, dropout)

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        inner = torch.bmm(x.flatten(2), params[f"{self.name}.first"].transpose(1, 2))
        second, bias = params[f"{self.name}.second"], params[f"{self.name}.bias"]
        return self._finish(torch.baddbmm(bias.unsqueeze(1), inner, second.transpose(1, 2)), dropout)


@dataclass(frozen=True)
class Network:
    """An ordered tuple of layers; every method takes and returns plain dictionaries of tensors."""

    layers: tuple[Layer, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Layer names from input to output: the split points."""
        return tuple(layer.name for layer in self.layers)

    @property
    def splittable(self) -> tuple[str, ...]:
        """Names of the fully connected layers, which a method may make personal one after the other."""
        return tuple(layer.name for layer in self.layers if isinstance(layer, _Dense))

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

    def count(self, layers: Iterable[str] | None = None) -> int:
        """Number of parameters of the named layers (default: all)."""
        return sum(math.prod(shape) for shape in self.shapes(layers).values())

    def init(self, rng: np.random.Generator, device: torch.device | str = "cpu") -> Params:
        """Draw initial parameters: uniform on ±1/sqrt(fan-in), PyTorch's default law for these layers.

        NumPy draws them, so that they are the same on every device and PyTorch version.
        """
        params = {}
        for layer in self.layers:
            bound = 1 / math.sqrt(layer.fan_in)
            for key, shape in layer.shapes().items():
                values = rng.uniform(-bound, bound, size=shape).astype(np.float32)
                params[key] = torch.from_numpy(values).to(device)
        return params

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


def cnn(
    shape: tuple[int, int, int],
    classes: int,
    channels: tuple[int, int],
    hidden: tuple[int, int],
    kernel: int = 5,
    padding: int = 0,
) -> Network:
    """The family of all image nets here: two convolutions, three fully connected layers.

    Args:
        shape: channels, height and width of an image.
        classes: number of outputs.
        channels: output channels of conv1 and conv2.
        hidden: widths of fc1 and fc2.
    """

    def after(side: int) -> int:
        return (side + 2 * padding - kernel + 1) // 2

    height, width = after(after(shape[1])), after(after(shape[2]))
    return Network(
        (
            Conv("conv1", shape[0], channels[0], kernel, padding),
            Conv("conv2", channels[0], channels[1], kernel, padding),
            Linear("fc1", channels[1] * height * width, hidden[0]),
            Linear("fc2", hidden[0], hidden[1]),
            Linear("fc3", hidden[1], classes, activation=False),
        )
    )


# Parameter counts: cifar10 307,842; cifar100 1,075,044; emnist 245,274 (the paper gives no sizes for it:
# FedRep's CNNMnist layout without its Dropout2d); digits is a small net of the same family.
NETWORKS: dict[str, Network] = {
    "cifar10": cnn((3, 32, 32), 10, (64, 64), (120, 64)),
    "cifar100": cnn((3, 32, 32), 100, (64, 128), (256, 128)),
    "emnist": cnn((1, 28, 28), 26, (64, 64), (128, 64)),
    "fmnist": cnn((1, 28, 28), 10, (64, 64), (128, 64)),
    "digits": cnn((1, 8, 8), 10, (16, 32), (64, 32), kernel=3, padding=1),
}


def build_network(dataset: str, dropout: float = 0.0) -> Network:
    """The network of a dataset; `dropout` is the rate after fc2 (FedRep's CIFAR-100 net has 0.6)."""
    network = NETWORKS[dataset]
    if not dropout:
        return network
    fc2 = network.layer("fc2")
    assert isinstance(fc2, Linear)
    return network.with_layers({"fc2": replace(fc2, dropout=dropout)})
