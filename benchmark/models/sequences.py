"""Layers for sequences: convolutions over time, and vectors for characters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.models.layers import DropoutSource, Layer


@dataclass(frozen=True)
class Conv1d(Layer):
    """Convolution over time of a series [B, C, T], max-pooling by two, ReLU."""

    channels_in: int
    channels_out: int
    kernel: int = 5

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            f"{self.name}.weight": (self.channels_out, self.channels_in, self.kernel),
            f"{self.name}.bias": (self.channels_out,),
        }

    @property
    def fan_in(self) -> int:
        return self.channels_in * self.kernel

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        weight, bias = params[f"{self.name}.weight"], params[f"{self.name}.bias"]
        return _pooled(x, weight, bias, 1)

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        weight, bias = params[f"{self.name}.weight"].flatten(0, 1), params[f"{self.name}.bias"].flatten()
        side_by_side = x.transpose(0, 1).flatten(1, 2)  # [B, m C, T]
        out = _pooled(side_by_side, weight, bias, len(x))
        return out.unflatten(1, (len(x), self.channels_out)).transpose(0, 1)


@dataclass(frozen=True)
class Embedding(Layer):
    """A trained vector for each character [B, T], in the form that `Recurrent` reads [B, T, width + 1].

    Characters are numbers in the alphabet as float32, exact up to 2^24.
    """

    symbols: int
    width: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {f"{self.name}.weight": (self.symbols, self.width)}

    @property
    def fan_in(self) -> int:
        return 1

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Standard normal, PyTorch's default."""
        (shape,) = self.shapes().values()
        return {f"{self.name}.weight": rng.standard_normal(shape, dtype=np.float32)}

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        return _with_mask(F.embedding(x.long(), params[f"{self.name}.weight"]))

    def apply_stacked(
        self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None
    ) -> Tensor:
        # One table with the rows of all models below each other.
        first = torch.arange(len(x), device=x.device).mul(self.symbols).view(-1, *[1] * (x.dim() - 1))
        return _with_mask(F.embedding(x.long() + first, params[f"{self.name}.weight"].flatten(0, 1)))


def _pooled(x: Tensor, weight: Tensor, bias: Tensor, groups: int) -> Tensor:
    """Convolution over time of [B, C, T], max-pooling by two, ReLU."""
    images = x.unsqueeze(2)  # of one row
    if x.device.type == "cpu":  # pooling is several times as fast there with channels last
        images = images.contiguous(memory_format=torch.channels_last)
    out = F.conv2d(images, weight.unsqueeze(2), bias, groups=groups)
    return F.relu(F.max_pool2d(out, (1, 2))).squeeze(2)


def _with_mask(vectors: Tensor) -> Tensor:
    """With a last channel of ones: every step is valid."""
    return F.pad(vectors, (0, 1), value=1.0)
