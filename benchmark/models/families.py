"""Two families of networks, for images and for texts, that the paper's networks belong to."""

from __future__ import annotations

from pfl_benchmark.models.layers import Conv, Linear
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.recurrent import Recurrent


def cnn(
    shape: tuple[int, ...],
    classes: int,
    channels: tuple[int, int],
    hidden: tuple[int, int],
    kernel: int = 5,
    padding: int = 0,
) -> Network:
    """Two convolutions, three fully connected layers, for images of a shape [C, H, W].

    `channels` are the output channels of conv1 and conv2, `hidden` the widths of fc1 and fc2.
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
    """A recurrent layer with `units` outputs, three fully connected layers, for word vectors of a `width`.

    `hidden` are the widths of fc1 and fc2, `cell` is one of `CELLS`.
    """
    return Network(
        (
            Recurrent("rnn", width, units, cell),
            Linear("fc1", units, hidden[0]),
            Linear("fc2", hidden[0], hidden[1]),
            Linear("fc3", hidden[1], classes, activation=False),
        )
    )
