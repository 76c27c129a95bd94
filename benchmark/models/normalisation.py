"""Batch normalisation: a layer with statistics besides its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.models.layers import DropoutSource, Layer

# Why several models cannot be computed at once.
COUNTED = "batch normalisation: places that fill a client's batch up would count in its statistics"


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Normalises channels as torch.nn.BatchNorm1d and 2d do; running statistics are its buffers."""

    channels: int
    momentum: float = 0.1  # of the running statistics
    epsilon: float = 1e-5

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {f"{self.name}.{kind}": (self.channels,) for kind in ("weight", "bias", "mean", "var")}

    @property
    def buffers(self) -> tuple[str, ...]:
        return f"{self.name}.mean", f"{self.name}.var"

    @property
    def normalisation(self) -> tuple[str, ...]:
        return tuple(self.shapes())

    @property
    def not_stackable(self) -> str:
        return COUNTED

    @property
    def fan_in(self) -> int:
        return 1

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Gains and variances of 1, offsets and means of 0."""
        values = {"weight": 1.0, "bias": 0.0, "mean": 0.0, "var": 1.0}
        return {
            f"{self.name}.{kind}": np.full(self.channels, value, np.float32) for kind, value in values.items()
        }

    def apply(self, params: Mapping[str, Tensor], x: Tensor, dropout: DropoutSource | None = None) -> Tensor:
        weight, bias, mean, var = (params[key] for key in self.shapes())
        return F.batch_norm(x, mean, var, weight, bias, dropout is not None, self.momentum, self.epsilon)
