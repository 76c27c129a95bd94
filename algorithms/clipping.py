"""Clipping of local gradients, for methods whose official code clips them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pfl_benchmark.method import Rule, Step, along

TINY = 1e-6  # added to norms before they divide, as in torch.nn.utils.clip_grad_norm_


@dataclass(frozen=True)
class Clipped(Rule):
    """The engine's step with each client's gradient scaled down to a norm of at most `limit`."""

    limit: float

    def __call__(self, step: Step) -> Tensor:
        gradients, losses = step.gradient()
        norms = torch.stack([slope.flatten(1).square().sum(1) for slope in gradients.values()]).sum(0).sqrt()
        factor = (self.limit / (norms + TINY)).clamp(max=1)
        step.descend({name: along(factor, slope) * slope for name, slope in gradients.items()})
        return losses
