"""Residual networks that are small enough to train every method with."""

from collections import OrderedDict

import pytest
from torch import nn

from pfl_benchmark.models import ARCHITECTURES, network_from_module, register_network
from pfl_benchmark.models.architectures.norms import NORMS
from pfl_benchmark.models.architectures.resnet8 import Block

SPLITS = ("stem", "stage1", "fc1", "fc2", "fc")


def module(channels, classes, norm):
    """Blocks of ResNet-8 with few channels; pooling halves the resolution.

    A strided shortcut of so few channels would be refused.
    """
    first = nn.Conv2d(channels, 4, 3, padding=1, bias=False)
    return nn.Sequential(
        OrderedDict(
            stem=nn.Sequential(OrderedDict(conv=first, norm=norm(4), relu=nn.ReLU(), pool=nn.MaxPool2d(2))),
            stage1=Block(4, 6, 1, norm),
            pool=nn.AdaptiveAvgPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(24, 16),
            relu1=nn.ReLU(),
            fc2=nn.Linear(16, 12),
            relu2=nn.ReLU(),
            fc=nn.Linear(12, classes),
        )
    )


def register_small(variant):
    norm = NORMS[variant][0]

    @register_network(f"small-{variant}", f"Small, {variant}", "tests", least=4)
    def make(shape, classes):
        return network_from_module(lambda: module(shape[0], classes, norm), SPLITS, shape)


@pytest.fixture(scope="module")
def small_networks():
    """``--network small-bn`` and ``small-gn`` exist."""
    for variant in NORMS:
        register_small(variant)
    yield
    for variant in NORMS:
        del ARCHITECTURES[f"small-{variant}"]
