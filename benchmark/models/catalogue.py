"""The datasets' own networks, and what a run may change in a network."""

from __future__ import annotations

from dataclasses import replace

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.registry import DATASETS
from pfl_benchmark.errors import UserError
from pfl_benchmark.models.layers import Layer, Linear
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.recurrent import Recurrent
from pfl_benchmark.models.registry import Shape, find_architecture

_WIDTHS = {"sent140": 300, "synth-tweets": 16}  # of the word vectors


def sample_shape(info: DatasetInfo, embedding: int = 0) -> Shape:
    """The shape of a dataset's samples as `Factory` takes it, with word vectors of that width."""
    own = {"words": (embedding,), "characters": (*info.shape, info.symbols)}
    return own.get(info.kind, info.shape)


OWN: dict[str, str] = {info.name: info.network for info in DATASETS.values() if info.network}
NETWORKS: dict[str, Network] = {
    name: find_architecture(network).make(
        sample_shape(DATASETS[name], _WIDTHS.get(name, 0)), DATASETS[name].classes
    )
    for name, network in OWN.items()
}


def adapt(network: Network, name: str, dropout: float = 0.0, cell: str = "lstm", width: int = 0) -> Network:
    """A network, in messages called `name`, with what a run may change in it; at the defaults it is as it is.

    That is the rate of dropout after fc2 (FedRep's CIFAR-100 net has 0.6; UserError where no fully connected
    layer fc2 stands before the last), the recurrent cell, and the width of word vectors.
    """
    changed: dict[str, Layer] = {}
    for layer in network.layers:
        if isinstance(layer, Recurrent):
            changed[layer.name] = replace(
                layer, cell=layer.cell if cell == "lstm" else cell, inputs=width or layer.inputs
            )
        elif isinstance(layer, Linear) and layer.name == "fc2" and layer is not network.layers[-1]:
            changed[layer.name] = replace(layer, dropout=dropout or layer.dropout)
    if dropout and "fc2" not in changed:
        raise UserError(
            f"--dropout {dropout:g} goes behind a fully connected layer fc2, and the network of '{name}' "
            f"has none ({', '.join(network.names)}); drop it"
        )
    return network.with_layers(changed) if changed else network


def build_network(dataset: str, dropout: float = 0.0, cell: str = "lstm", width: int = 0) -> Network:
    """A dataset's own network, with the changes of `adapt`."""
    return adapt(NETWORKS[dataset], dataset, dropout, cell, width)
