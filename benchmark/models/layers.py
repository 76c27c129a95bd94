"""Layers of networks: descriptions that take their tensors from a dictionary, for one model or a stack."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

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

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw the layer's initial tensors, float32: uniform on ±1/sqrt(fan-in).

        That is PyTorch's default for convolutions and fully connected layers; other layers override it, such
        as a normalisation, whose gains begin at one.
        """
        bound = 1 / math.sqrt(self.fan_in)
        return {
            key: rng.uniform(-bound, bound, size=shape).astype(np.float32)
            for key, shape in self.shapes().items()
        }

    @abstractmethod
    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        """The layer's output for the batch `x` [B, ...]; in evaluation mode where `dropout` is None."""

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        """The same for m models at once: stacked parameters [m, ...] and batches `x` [m, B, ...].

        Optional: a layer that does not define it cannot be trained by the executor `stacked`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no stacked form")

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of the tensors that have no gradient: `apply` changes them in place in training mode.

        They are in `shapes`, so that they are sent, averaged or kept with their layer like its other tensors.
        """
        return ()

    @property
    def normalisation(self) -> tuple[str, ...]:
        """Names of the tensors that belong to batch normalisation, statistics included."""
        return ()

    @property
    def not_stackable(self) -> str:
        """Why several models cannot be computed at once, in words; empty if they can."""
        defined = type(self).apply_stacked is not Layer.apply_stacked
        return "" if defined else "no `apply_stacked`"

    @property
    def made_of(self) -> tuple[type, ...]:
        """Classes whose code computes the layer."""
        return (type(self),)

    @property
    def still(self) -> bool:
        """True if nothing of the layer trains (`models.frozen`)."""
        return False

    @property
    def done(self) -> bool:
        """True if the layer only hands on what was computed before (`models.frozen`)."""
        return False

    @property
    def plain(self) -> Layer:
        """The layer without adapters, and with all its tensors (`models.adapters`)."""
        return self

    @property
    def thawed(self) -> Layer:
        """The layer with its adapters, and with all its tensors: what saved models are of."""
        return self

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
        # On each type of device the faster of the two (docs/performance.md).
        return (self.by_groups if x.device.type == "cpu" else self.by_patches)(params, x)

    def by_groups(self, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """`apply_stacked` as one convolution with a group for each model."""
        weight, bias = params[f"{self.name}.weight"].flatten(0, 1), params[f"{self.name}.bias"].flatten()
        side_by_side = x.transpose(0, 1).flatten(1, 2)  # [B, m C, H, W]
        side_by_side = side_by_side.contiguous(memory_format=torch.channels_last)  # for the pooling
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


@dataclass(frozen=True)
class Dense(Layer):
    """What fully connected layers have in common: sizes, activation, dropout, and whether there is a bias."""

    inputs: int
    outputs: int
    activation: bool = True
    dropout: float = 0.0
    bias: bool = True

    @property
    def fan_in(self) -> int:
        return self.inputs

    @property
    def drops(self) -> bool:
        return self.dropout > 0

    def _bias(self, params: Mapping[str, Tensor]) -> Tensor | None:
        return params[f"{self.name}.bias"] if self.bias else None

    def _with_bias(self, weights: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        return {**weights, **({f"{self.name}.bias": (self.outputs,)} if self.bias else {})}

    @staticmethod
    def _product(bias: Tensor | None, x: Tensor, weight: Tensor) -> Tensor:
        """Of stacked inputs and weights [m, outputs, inputs], plus the bias."""
        weight = weight.transpose(1, 2)
        return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight)

    def _finish(self, x: Tensor, dropout: DropoutSource | None) -> Tensor:
        if self.activation:
            x = F.relu(x)
        if self.drops and dropout is not None:
            x = x * dropout(tuple(x.shape), self.dropout)
        return x


@dataclass(frozen=True)
class Linear(Dense):
    """Fully connected layer; flattens its input, applies ReLU unless it is the last layer."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self._with_bias({f"{self.name}.weight": (self.outputs, self.inputs)})

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        x = F.linear(x.flatten(1), params[f"{self.name}.weight"], self._bias(params))
        return self._finish(x, dropout)

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        x = self._product(self._bias(params), x.flatten(2), params[f"{self.name}.weight"])
        return self._finish(x, dropout)


@dataclass(frozen=True)
class LowRank(Dense):
    """A `Linear` layer as the product of two factors, ``second @ first``; one bias, no activation between.

    The inner factor carries no bias: only so do the paper's transmitted shares come out (83.8 %).
    """

    rank: int = 1

    @staticmethod
    def of(layer: Dense, rank: int) -> LowRank:
        """In the place of a layer."""
        return LowRank(
            layer.name, layer.inputs, layer.outputs, layer.activation, layer.dropout, layer.bias, rank=rank
        )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self._with_bias(
            {f"{self.name}.first": (self.rank, self.inputs), f"{self.name}.second": (self.outputs, self.rank)}
        )

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        inner = F.linear(x.flatten(1), params[f"{self.name}.first"])
        x = F.linear(inner, params[f"{self.name}.second"], self._bias(params))
        return self._finish(x, dropout)

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        inner = torch.bmm(x.flatten(2), params[f"{self.name}.first"].transpose(1, 2))
        return self._finish(self._product(self._bias(params), inner, params[f"{self.name}.second"]), dropout)
