"""The normalisations that residual networks are registered with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

Norm = Callable[[int], nn.Module]  # for a number of channels

# By the end of networks' names, with words for titles. Two groups as in the code of Reddi et al., ICLR 2021
# (google-research/federated, utils/models/resnet_models.py: TensorFlow Addons' default of that time).
NORMS: dict[str, tuple[Norm, str]] = {
    "bn": (nn.BatchNorm2d, "batch normalisation"),
    "gn": (partial(nn.GroupNorm, 2), "group normalisation (2 groups)"),
}
