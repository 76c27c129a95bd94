"""Adapters: the network of which only LoRA factors, bottlenecks, biases or nothing but the last layer trains.

The last layer, which gives the logits, always trains whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from pfl_benchmark.errors import UserError, nearest
from pfl_benchmark.models.frozen import Bottleneck, Frozen, LowRankUpdate, matrix
from pfl_benchmark.models.layers import Conv, Layer, Linear
from pfl_benchmark.models.module import ModuleLayer
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.sequences import Conv1d


def with_lora(network: Network, rank: int, scale: float, layers: Sequence[str] = ()) -> Network:
    """LoRA of rank `rank` on the matrices of some layers (default: of all that have some); see `weights_of`.

    UserError: no such layers, or a rank that a matrix does not have.
    """

    def adapted(layer: Layer) -> Layer:
        found = weights_of(layer)
        for name, shape in found.items():
            if rank > min(matrix(shape)):
                outputs, inputs = matrix(shape)
                raise UserError(
                    f"--adapters lora:r={rank}: {name} is a matrix of {outputs} x {inputs}; expected a "
                    f"rank of at most {min(outputs, inputs)}, or other layers ({_such(network, rank)})"
                )
        return Frozen(
            layer.name,
            layer,
            updates=tuple(LowRankUpdate(name, shape, rank, scale) for name, shape in found.items()),
        )

    return _frozen(network, "lora", layers, weights_of, adapted, "linear, attention or convolutional layer")


def with_bottlenecks(network: Network, units: int, x: Tensor, layers: Sequence[str] = ()) -> Network:
    """An adapter of `units` units behind some layers (default: behind all that have matrices).

    Args:
        x: an input [B, ...] on the `meta` device, by which the outputs' widths are found.

    UserError: no such layers, or more units than a layer has outputs.
    """
    axes: dict[str, int] = {}  # of the features, and their number, by layer
    widths: dict[str, int] = {}
    params = {name: torch.empty(shape, device="meta") for name, shape in network.shapes().items()}
    for layer in network.layers:
        x = layer.apply(params, x)
        axes[layer.name] = _axis(layer, x.shape)
        widths[layer.name] = x.shape[axes[layer.name]]

    def adapted(layer: Layer) -> Layer:
        width, axis = widths[layer.name], axes[layer.name]
        if units > width:
            wide = [
                each.name for each in network.layers[:-1] if weights_of(each) and widths[each.name] >= units
            ]
            raise UserError(
                f"--adapters bottleneck:d={units}: the layer '{layer.name}' has outputs of width {width}; "
                f"expected at most that, or other layers ({_named(wide)})"
            )
        whole = Bottleneck(layer.name, layer, width, units, axis)
        return Frozen(layer.name, whole, trained=tuple(whole.own()))

    return _frozen(
        network, "bottleneck", layers, weights_of, adapted, "linear, attention or convolutional layer"
    )


def with_biases(network: Network, layers: Sequence[str] = ()) -> Network:
    """Only biases train, those of normalisations included (BitFit; Ben Zaken et al., ACL 2022)."""

    def biases(layer: Layer) -> list[str]:
        own = (name for name in layer.shapes() if name not in layer.buffers)
        return [name for name in own if "bias" in name.rpartition(".")[2]]

    return _frozen(
        network,
        "bias",
        layers,
        biases,
        lambda layer: Frozen(layer.name, layer, trained=tuple(biases(layer))),
        "layer with a bias",
    )


def with_head(network: Network) -> Network:
    """Only the last layer trains (linear probing)."""
    frozen = [Frozen(layer.name, layer) for layer in network.layers[:-1]]
    return replace(network, layers=(*frozen, network.layers[-1]))


def weights_of(layer: Layer) -> dict[str, tuple[int, ...]]:
    """Weights of a layer that LoRA can be on, by name: matrices and kernels that are read as such.

    Of multi-head attention that is the packed matrix of queries, keys and values, and the one behind it; not
    among them are convolutions in groups, recurrent layers and what is looked up (embeddings, positions).
    """
    if isinstance(layer, Linear | Conv | Conv1d):
        name = f"{layer.name}.weight"
        return {name: layer.shapes()[name]}
    if not isinstance(layer, ModuleLayer):
        return {}
    shapes, found = layer.shapes(), {}
    for place, part in layer.module.named_modules():
        kinds = []
        if isinstance(part, nn.Linear) or (isinstance(part, nn.Conv1d | nn.Conv2d) and part.groups == 1):
            kinds = ["weight"]
        elif isinstance(part, nn.MultiheadAttention) and part.in_proj_weight is not None:
            kinds = ["in_proj_weight"]
        for kind in kinds:
            name = f"{layer.name}.{place}.{kind}"
            if name in shapes and name not in layer.buffers:
                found[name] = shapes[name]
    return found


def _axis(layer: Layer, shape: Sequence[int]) -> int:
    """Where the features of a layer's output are, counted from the last axis.

    Of images they are channels, but of modules that keep these last; of other modules the last convolution or
    fully connected part tells.
    """
    if isinstance(layer, Conv1d):
        return -2
    axes = [-3, -1] if len(shape) == 4 else [-1]
    parts = list(layer.module.modules()) if isinstance(layer, ModuleLayer) else []
    made = [part for part in parts if isinstance(part, nn.Conv1d | nn.Conv2d | nn.Linear)]
    if not made:
        return axes[0]
    last = made[-1]
    if len(shape) == 3 and not isinstance(last, nn.Linear):
        axes = [-2, -1]
    width = last.out_features if isinstance(last, nn.Linear) else last.out_channels
    return next((axis for axis in axes if shape[axis] == width), axes[0])


def _such(network: Network, rank: int) -> str:
    """How to choose layers whose matrices can have a rank."""
    shapes = {layer.name: weights_of(layer).values() for layer in network.layers[:-1]}
    fitting = [name for name, own in shapes.items() if own and rank <= min(min(matrix(each)) for each in own)]
    return _named(fitting)


def _named(names: Sequence[str]) -> str:
    return f"layers={'+'.join(names[-2:])}" if names else "the network has none"


def _frozen(
    network: Network,
    kind: str,
    layers: Sequence[str],
    has: Callable[[Layer], object],
    adapted: Callable[[Layer], Layer],
    what: str,
) -> Network:
    """The network with some layers adapted (default: all that can be), the others frozen but the last."""
    *before, last = network.layers
    fitting = [layer.name for layer in before if has(layer)]
    if not fitting:
        raise UserError(
            f"--adapters {kind}: the network has no {what} before its last one ({', '.join(network.names)}); "
            "choose another --network, or --adapters head"
        )
    for name in layers:
        if name not in fitting:
            why = "which trains whole anyway" if name == last.name else f"no {what}"
            if name not in network.names:
                why = f"no layer of the network{nearest(name, fitting)}"
            raise UserError(
                f"--adapters {kind}: layers has '{name}', {why}; expected some of {'+'.join(fitting)}"
            )
    chosen = layers or fitting
    found = [adapted(layer) if layer.name in chosen else Frozen(layer.name, layer) for layer in before]
    return replace(network, layers=(*found, last))
