"""The networks of the datasets, and the two families that they come from."""

from __future__ import annotations

from dataclasses import replace

from benchmark.errors import UserError
from benchmark.models.layers import Conv, Layer, Linear
from benchmark.models.network import Network
from benchmark.models.recurrent import Recurrent

__all__ = ["NETWORKS", "build_network", "cnn", "rnn"]


def cnn(
    shape: tuple[int, int, int],
    classes: int,
    channels: tuple[int, int],
    hidden: tuple[int, int],
    kernel: int = 5,
    padding: int = 0,
) -> Network:
    """The family of all image nets here: two convolutions, three fully connected layers.

    Args:
        shape: channels, height and width of an image.
        classes: number of outputs.
        channels: output channels of conv1 and conv2.
        hidden: widths of fc1 and fc2.
    """

    def after(side: int) -> int:
        return (side + 2 * padding - kernel + 1) // 2

    height, width = after(after(shape[1])), after(after(shape[2]))
    return Network(
        (
            Conv("conv1", shape[0], channels[0], kernel, padding),
            Conv("conv2", channels[0], channels[1], kernel, padding),
            Linear("fc1", channels[1] * height * width, hidden[0]),
            Linear("fc2", hidden[0], hidden[1]),
            Linear("fc3", hidden[1], classes, activation=False),
        )
    )


def rnn(width: int, classes: int, units: int, hidden: tuple[int, int], cell: str = "lstm") -> Network:
    """The family of all text nets here: a recurrent layer, three fully connected layers.

    Args:
        width: of the word vectors.
        classes: number of outputs.
        units: outputs of the recurrent layer.
        hidden: widths of fc1 and fc2.
        cell: one of `CELLS`.
    """
    return Network(
        (
            Recurrent("rnn", width, units, cell),
            Linear("fc1", units, hidden[0]),
            Linear("fc2", hidden[0], hidden[1]),
            Linear("fc3", hidden[1], classes, activation=False),
        )
    )


# Parameter counts: cifar10 307,842; cifar100 1,075,044; emnist 245,274 (the paper gives no sizes for it:
# FedRep's CNNMnist layout without its Dropout2d); sent140 286,338 with the paper's 300-dimensional vectors
# (no sizes given either: units of FedRep's RNNSent, wide fully connected layers that can be reduced). The
# digits and the synthetic tweets have small nets of the same families.
NETWORKS: dict[str, Network] = {
    "cifar10": cnn((3, 32, 32), 10, (64, 64), (120, 64)),
    "cifar100": cnn((3, 32, 32), 100, (64, 128), (256, 128)),
    "emnist": cnn((1, 28, 28), 26, (64, 64), (128, 64)),
    "fmnist": cnn((1, 28, 28), 10, (64, 64), (128, 64)),
    "digits": cnn((1, 8, 8), 10, (16, 32), (64, 32), kernel=3, padding=1),
    "sent140": rnn(300, 2, 128, (256, 128)),
    "synth-tweets": rnn(16, 2, 16, (32, 16)),
}


def build_network(dataset: str, dropout: float = 0.0, cell: str = "lstm", width: int = 0) -> Network:
    """The network of a dataset.

    Args:
        dropout: rate after fc2 (FedRep's CIFAR-100 net has 0.6).
        cell: kind of the recurrent layer, where there is one.
        width: of the word vectors, where there are some; 0: as in `NETWORKS`.

    Raises:
        UserError: dropout for a network without a fully connected layer fc2.
    """
    network = NETWORKS[dataset]
    if dropout and not any(isinstance(layer, Linear) and layer.name == "fc2" for layer in network.layers):
        raise UserError(
            f"--dropout {dropout:g} goes behind a fully connected layer fc2, and the network of '{dataset}' "
            f"has none ({', '.join(network.names)}); drop it"
        )
    changed: dict[str, Layer] = {}
    for layer in network.layers:
        if isinstance(layer, Recurrent):
            changed[layer.name] = replace(layer, cell=cell, inputs=width or layer.inputs)
        elif isinstance(layer, Linear) and layer.name == "fc2":
            changed[layer.name] = replace(layer, dropout=dropout)
    return network.with_layers(changed)
