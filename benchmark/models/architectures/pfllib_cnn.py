"""The convolutional network of PFLlib."""

from __future__ import annotations

from pfl_benchmark.models.layers import Conv, Linear
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.registry import Shape, register_network


@register_network(
    "pfllib-cnn", "CNN of PFLlib", "TsingZ0/PFLlib flcore/trainmodel/models.py (FedAvgCNN)", least=16
)
def pfllib_cnn(shape: Shape, classes: int) -> Network:
    """Two convolutions with 32 and 64 channels, 512 hidden units: 878,538 parameters for CIFAR-10."""

    def after(side: int) -> int:
        return ((side - 4) // 2 - 4) // 2

    return Network(
        (
            Conv("conv1", shape[0], 32),
            Conv("conv2", 32, 64),
            Linear("fc1", 64 * after(shape[1]) * after(shape[2]), 512),
            Linear("fc", 512, classes, activation=False),
        )
    )
