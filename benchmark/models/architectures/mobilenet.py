"""torchvision's small MobileNetV3."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from torch import nn

from pfl_benchmark.datasets.vision import import_torchvision
from pfl_benchmark.models.module import network_from_module
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.registry import Shape, register_network

SPLITS = ("stem", "stage1", "stage2", "stage3", "stage4", "last", "fc1", "fc")


def build(channels: int, classes: int) -> nn.Module:
    """torchvision's layers and initial values; a stage begins where the resolution is halved."""
    models = import_torchvision("models")
    whole = models.mobilenet_v3_small(weights=None, num_classes=classes, dropout=0.0)
    features, (fc1, activation, _, fc) = whole.features, whole.classifier
    if channels != 3:
        features[0][0] = nn.Conv2d(channels, 16, 3, stride=2, padding=1, bias=False)
        nn.init.kaiming_normal_(features[0][0].weight, mode="fan_out")
    return nn.Sequential(
        OrderedDict(
            stem=features[0],
            stage1=features[1],
            stage2=features[2:4],
            stage3=features[4:9],
            stage4=features[9:12],
            last=features[12],
            pool=whole.avgpool,
            flatten=nn.Flatten(),
            fc1=fc1,
            activation=activation,
            fc=fc,
        )
    )


@register_network(
    "mobilenet_v3_small",
    "MobileNetV3 small, batch normalisation",
    "Howard et al., ICCV 2019; torchvision mobilenet_v3_small, without dropout",
    least=28,
)
def mobilenet_v3_small(shape: Shape, classes: int) -> Network:
    """1,528,106 parameters for CIFAR-10 and running statistics besides; images are halved five times."""
    return network_from_module(partial(build, shape[0], classes), SPLITS, shape)
