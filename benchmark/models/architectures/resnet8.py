"""The smallest residual network for small images, which much work on federated learning uses."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from pfl_benchmark.models.architectures.norms import NORMS, Norm
from pfl_benchmark.models.module import network_from_module
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.registry import Shape, register_network

SPLITS = ("stem", "stage1", "stage2", "stage3", "fc")


class Block(nn.Module):
    """Two convolutions of 3 × 3 beside a shortcut, which is a convolution of 1 × 1 where sizes change."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = norm(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                OrderedDict(conv=nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm=norm(outputs))
            )

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(hidden)) + self.shortcut(x))


def build(channels: int, classes: int, norm: Norm, width: int) -> nn.Module:
    """The module, with weights drawn as in He et al., ICCV 2015."""
    first = nn.Conv2d(channels, width, 3, padding=1, bias=False)
    module = nn.Sequential(
        OrderedDict(
            stem=nn.Sequential(OrderedDict(conv=first, norm=norm(width), relu=nn.ReLU())),
            stage1=Block(width, width, 1, norm),
            stage2=Block(width, 2 * width, 2, norm),
            stage3=Block(2 * width, 4 * width, 2, norm),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            fc=nn.Linear(4 * width, classes),
        )
    )
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
    return module


def resnet8(shape: Shape, classes: int, norm: Norm, width: int = 16) -> Network:
    """One block a stage, with `width`, twice and four times as many channels.

    For CIFAR-10 there are 78,042 parameters, with batch normalisation 672 running statistics besides.
    """
    return network_from_module(partial(build, shape[0], classes, norm, width), SPLITS, shape)


def _register(variant: str, norm: Norm, words: str) -> None:
    source = "He et al., CVPR 2016, section 4.2, with n = 1 and projections where sizes change"

    @register_network(f"resnet8-{variant}", f"ResNet-8, {words}", source, least=8)
    def make(shape: Shape, classes: int) -> Network:
        return resnet8(shape, classes, norm)


for _variant, (_norm, _words) in NORMS.items():
    _register(_variant, _norm, _words)
