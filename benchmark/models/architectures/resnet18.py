"""torchvision's ResNet-18, adapted to small images."""

from __future__ import annotations

from functools import partial

from torch import nn

from pfl_benchmark.datasets.vision import import_torchvision
from pfl_benchmark.models.architectures.norms import NORMS, Norm
from pfl_benchmark.models.module import network_from_module
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.registry import Shape, register_network

SPLITS = ("conv1", "layer1", "layer2", "layer3", "layer4", "fc")


def build(channels: int, classes: int, norm: Norm) -> nn.Module:
    """The module, with torchvision's own initial values."""
    module = import_torchvision("models").resnet18(weights=None, num_classes=classes, norm_layer=norm)
    module.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(module.conv1.weight, mode="fan_out", nonlinearity="relu")
    module.maxpool = nn.Identity()
    return module


def resnet18(shape: Shape, classes: int, norm: Norm) -> Network:
    """11,173,962 parameters for CIFAR-10, with batch normalisation 9,600 running statistics besides."""
    return network_from_module(partial(build, shape[0], classes, norm), SPLITS, shape)


def _register(variant: str, norm: Norm, words: str) -> None:
    source = "He et al., CVPR 2016; torchvision resnet18, the first convolution 3 x 3, no first pooling"

    @register_network(f"resnet18-{variant}", f"ResNet-18, {words}", source, least=8)
    def make(shape: Shape, classes: int) -> Network:
        return resnet18(shape, classes, norm)


for _variant, (_norm, _words) in NORMS.items():
    _register(_variant, _norm, _words)
