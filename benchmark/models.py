"""Layered networks with named split points.

A `Network` is an ordered tuple of named layers (conv1, conv2, fc1, fc2, fc3; for text rnn, fc1, fc2, fc3).
It holds no tensors: parameters live in a plain ``dict[str, Tensor]`` keyed ``"<layer>.<tensor>"``, so that
"the last t layers are personal", "send conv1 and conv2" and "replace fc1 by a rank-r pair" are dictionary
operations, and one description serves one client or a whole stacked cohort.

The image nets are those of FedRep's repository (models/Nets.py, CNNCifar and CNNCifar100), whose sizes
the paper's transmitted shares confirm. Pooling comes before ReLU: the values are the same, the work less.
The text net is ours: the paper says "a recurrent neural network, followed by three fully connected layers".
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

__all__ = [
    "CELLS",
    "NETWORKS",
    "Conv",
    "Layer",
    "Linear",
    "LowRank",
    "Network",
    "Params",
    "Recurrent",
    "build_network",
    "cnn",
    "rnn",
]

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
        # The faster of the two on CPUs (docs/performance.md); on CUDA neither has been measured.
        return (self.by_patches if x.is_cuda else self.by_groups)(params, x)

    def by_groups(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """`apply_stacked` as one convolution with a group for each model."""
        weight, bias = params[f"{self.name}.weight"].flatten(0, 1), params[f"{self.name}.bias"].flatten()
        side_by_side = x.transpose(0, 1).flatten(1, 2)  # [B, m C, H, W]
        out = F.conv2d(side_by_side, weight, bias, padding=self.padding, groups=len(x))
        out = F.relu(F.max_pool2d(out, 2))
        return out.unflatten(1, (len(x), self.channels_out)).transpose(0, 1)

    def by_patches(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """`apply_stacked` as patches times kernels, one batched matrix product."""
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


CELLS = {"lstm": 4, "gru": 3}  # kinds of recurrent cells, and their gates


@dataclass(frozen=True)
class Recurrent(Layer):
    """One recurrent layer; its output [B, outputs] is the state after the last valid step.

    Its input [B, T, inputs + 1] holds a sequence of vectors and, in the last channel, 1 for valid steps and 0
    for those behind the end. An empty sequence leaves the state 0. Names, gate order, the two biases and the
    initial law are those of torch.nn.LSTM and torch.nn.GRU.
    """

    inputs: int
    outputs: int
    cell: str = "lstm"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        rows = CELLS[self.cell] * self.outputs
        return {
            f"{self.name}.weight_ih": (rows, self.inputs),
            f"{self.name}.weight_hh": (rows, self.outputs),
            f"{self.name}.bias_ih": (rows,),
            f"{self.name}.bias_hh": (rows,),
        }

    @property
    def fan_in(self) -> int:
        return self.outputs

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        # PyTorch's own loop over the steps: on CPUs a quarter of the time of one written here.
        tensors = [params[key] for key in self.shapes()]
        words, start = x[..., :-1], x.new_zeros(1, len(x), self.outputs)
        if self.cell == "lstm":
            states = torch.lstm(words, (start, start), tensors, True, 1, 0.0, False, False, True)[0]
        else:
            states = torch.gru(words, start, tensors, True, 1, 0.0, False, False, True)[0]
        return (states * _last_step(x)).sum(-2)

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        # Every step is computed for every sequence, so that shapes do not depend on the data; states behind
        # the end are finite and weigh nothing.
        weight_ih, weight_hh, bias_ih, bias_hh = (params[key] for key in self.shapes())
        models, batch, steps = x.shape[:3]
        words = x[..., :-1].reshape(models, batch * steps, self.inputs)
        gates = torch.baddbmm(bias_ih.unsqueeze(1), words, weight_ih.transpose(1, 2))
        bias, weight = bias_hh.unsqueeze(1), weight_hh.transpose(1, 2)
        state = memory = x.new_zeros(models, batch, self.outputs)
        states = []
        for own in gates.view(models, batch, steps, -1).unbind(2):
            recurrent = torch.baddbmm(bias, state, weight)
            if self.cell == "lstm":
                state, memory = _lstm_step(own + recurrent, memory)
            else:
                state = _gru_step(own, recurrent, state)
            states.append(state)
        return (torch.stack(states, 2) * _last_step(x)).sum(-2)


def _last_step(x: Tensor) -> Tensor:
    """1 at the last valid step of every sequence, 0 elsewhere [..., T, 1]."""
    valid = x[..., -1:]
    return valid - F.pad(valid[..., 1:, :], (0, 0, 0, 1))


def _lstm_step(gates: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """State and memory [..., H] after one step, from the gates [..., 4 H] before their activation."""
    take, keep, new, show = gates.chunk(4, -1)
    memory = keep.sigmoid() * memory + take.sigmoid() * new.tanh()
    return show.sigmoid() * memory.tanh(), memory


def _gru_step(own: Tensor, recurrent: Tensor, state: Tensor) -> Tensor:
    """State [..., H] after one step, from what input and state add to the gates [..., 3 H]."""
    reset, keep, new = own.chunk(3, -1)
    of_reset, of_keep, of_new = recurrent.chunk(3, -1)
    keep = (keep + of_keep).sigmoid()
    new = (new + (reset + of_reset).sigmoid() * of_new).tanh()
    return new + keep * (state - new)


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

    @property
    def is_recurrent(self) -> bool:
        """True for networks that read sequences."""
        return any(isinstance(layer, Recurrent) for layer in self.layers)

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


def rnn(width: int, classes: int, units: int, hidden: tuple[int, int], cell: str = "lstm") -> Network:
    """The family of all text nets here: a recurrent layer, three fully connected layers.

    Args:
        width: of the word vectors.
        classes: number of outputs.
        units: outputs of the recurrent layer.
        hidden: widths of fc1 and fc2.
        cell: one of `CELLS`.
    """
    return Network(
        (
            Recurrent("rnn", width, units, cell),
            Linear("fc1", units, hidden[0]),
            Linear("fc2", hidden[0], hidden[1]),
            Linear("fc3", hidden[1], classes, activation=False),
        )
    )


# Parameter counts: cifar10 307,842; cifar100 1,075,044; emnist 245,274 (the paper gives no sizes for it:
# FedRep's CNNMnist layout without its Dropout2d); sent140 286,338 with the paper's 300-dimensional vectors
# (no sizes given either: units of FedRep's RNNSent, wide fully connected layers that can be reduced). The
# digits and the synthetic tweets have small nets of the same families.
NETWORKS: dict[str, Network] = {
    "cifar10": cnn((3, 32, 32), 10, (64, 64), (120, 64)),
    "cifar100": cnn((3, 32, 32), 100, (64, 128), (256, 128)),
    "emnist": cnn((1, 28, 28), 26, (64, 64), (128, 64)),
    "fmnist": cnn((1, 28, 28), 10, (64, 64), (128, 64)),
    "digits": cnn((1, 8, 8), 10, (16, 32), (64, 32), kernel=3, padding=1),
    "sent140": rnn(300, 2, 128, (256, 128)),
    "synth-tweets": rnn(16, 2, 16, (32, 16)),
}


def build_network(dataset: str, dropout: float = 0.0, cell: str = "lstm", width: int = 0) -> Network:
    """The network of a dataset.

    Args:
        dropout: rate after fc2 (FedRep's CIFAR-100 net has 0.6).
        cell: kind of the recurrent layer, where there is one.
        width: of the word vectors, where there are some; 0: as in `NETWORKS`.
    """
    network = NETWORKS[dataset]
    changed: dict[str, Layer] = {}
    for layer in network.layers:
        if isinstance(layer, Recurrent):
            changed[layer.name] = replace(layer, cell=cell, inputs=width or layer.inputs)
        elif isinstance(layer, Linear) and layer.name == "fc2":
            changed[layer.name] = replace(layer, dropout=dropout)
    return network.with_layers(changed)
