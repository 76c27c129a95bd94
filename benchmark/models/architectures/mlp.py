"""A network for rows of a table."""

from __future__ import annotations

from pfl_benchmark.models.layers import Linear
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.registry import Shape, register_network

_HIDDEN = (128, 64)


@register_network("mlp", "fully connected network for tables", "ours; widths of the paper's", kind="rows")
def mlp(shape: Shape, classes: int) -> Network:
    """Three fully connected layers: 10,178 parameters for 13 features and two classes."""
    return Network(
        (
            Linear("fc1", shape[0], _HIDDEN[0]),
            Linear("fc2", _HIDDEN[0], _HIDDEN[1]),
            Linear("fc3", _HIDDEN[1], classes, activation=False),
        )
    )
