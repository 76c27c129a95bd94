"""Outputs of the network's frozen beginning: computed once before the first round, and kept for the run."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from pfl_benchmark.engine.data import FederatedData, Part
from pfl_benchmark.engine.executors import Executor
from pfl_benchmark.engine.sgd import FORWARD_BATCH
from pfl_benchmark.models import Network
from pfl_benchmark.models.frozen import Frozen

MOST = 2**30  # bytes of them that are kept


def depth(network: Network) -> int:
    """How many layers from the first one neither train nor are random."""
    fixed = [layer.still and not layer.drops for layer in network.layers]
    return fixed.index(False)


@torch.no_grad()
def compute_once(network: Network, data: FederatedData, executor: Executor) -> Network:
    """Let the data hold the outputs of the frozen beginning in place of the clients' samples.

    Done if these outputs take at most `MOST` bytes; else, and without a frozen beginning, nothing happens.
    Not for runs with augmentation.

    Returns:
        The network whose frozen beginning hands on what the data hold.
    """
    stop = depth(network)
    if not stop:
        return network
    parts: tuple[Part, ...] = ("train", "test")
    rows = {part: data.used(part) for part in parts}
    sample = network.apply({}, data.encode(data.stored()[0][:1]), stop=stop)
    if sum(map(len, rows.values())) * math.prod(sample.shape[1:]) * sample.element_size() > MOST:
        return network
    found = {part: _outputs(network, data, executor, stop, part, rows[part]) for part in rows}
    for part, outputs in found.items():
        data.hold(part, rows[part], outputs)
    done = [replace(layer, done=True) for layer in network.layers[:stop] if isinstance(layer, Frozen)]
    return Network((*done, *network.layers[stop:]))


def _outputs(
    network: Network, data: FederatedData, executor: Executor, stop: int, part: Part, rows: Tensor
) -> Tensor:
    """Outputs of the layers before `stop` for stored samples, in the order of the rows."""
    stored, parts = data.stored(part)[0], rows.split(FORWARD_BATCH)

    def output(i: int) -> Tensor:
        return network.apply({}, executor.layout(data.encode(stored[parts[i]])), stop=stop).contiguous()

    return torch.cat(executor.map(output, len(parts)))
