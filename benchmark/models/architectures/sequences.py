"""Networks for series and for characters, with three fully connected layers as the paper's networks have."""

from __future__ import annotations

from pfl_benchmark.models.layers import Linear
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.recurrent import Recurrent
from pfl_benchmark.models.registry import Shape, register_network
from pfl_benchmark.models.sequences import Conv1d, Embedding

_CHANNELS = (32, 64, 64)
_KERNEL = 5
_VECTORS, _UNITS = 8, 128  # LEAF: 8 and 256 (models/shakespeare/stacked_lstm.py)


@register_network(
    "cnn-series", "CNN over time for series", "ours; fully connected as the paper's", kind="series", least=36
)
def cnn_series(shape: Shape, classes: int) -> Network:
    """Three convolutions over time: 142,358 parameters for HAPT."""
    channels, steps = shape
    layers = []
    for number, width in enumerate(_CHANNELS, 1):
        layers.append(Conv1d(f"conv{number}", channels, width, _KERNEL))
        channels, steps = width, (steps - _KERNEL + 1) // 2
    return Network((*layers, *_head(channels * steps, (120, 64), classes)))


@register_network(
    "rnn-characters",
    "two LSTM layers for characters",
    "LEAF models/shakespeare/stacked_lstm.py, with half of its units and three fully connected layers",
    kind="characters",
)
def rnn_characters(shape: Shape, classes: int) -> Network:
    """A vector a character, two recurrent layers: 240,336 parameters for Shakespeare's roles."""
    _, symbols = shape
    return Network(
        (
            Embedding("embedding", symbols, _VECTORS),
            Recurrent("rnn1", _VECTORS, _UNITS, whole=True),
            Recurrent("rnn2", _UNITS, _UNITS),
            *_head(_UNITS, (128, 64), classes),
        )
    )


def _head(inputs: int, hidden: tuple[int, int], classes: int) -> tuple[Linear, Linear, Linear]:
    return (
        Linear("fc1", inputs, hidden[0]),
        Linear("fc2", hidden[0], hidden[1]),
        Linear("fc3", hidden[1], classes, activation=False),
    )
