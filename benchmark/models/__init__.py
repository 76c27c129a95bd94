"""Layered networks with named split points.

A `Network` is an ordered tuple of named layers (conv1, conv2, fc1, fc2, fc3; for text rnn, fc1, fc2, fc3).
It holds no tensors: parameters live in a plain ``dict[str, Tensor]`` keyed ``"<layer>.<tensor>"``, so that
"the last t layers are personal", "send conv1 and conv2" and "replace fc1 by a rank-r pair" are dictionary
operations, and one description serves one client or a whole stacked cohort.

`NETWORKS` has the datasets' own networks, `ARCHITECTURES` what ``--network`` may choose instead; those in
`models.architectures` are registered by being there. In the hand-written layers pooling comes
before ReLU: the values are the same, the work less.
"""

from pfl_benchmark.models import architectures  # noqa: F401  # registers them
from pfl_benchmark.models.catalogue import NETWORKS, OWN, adapt, build_network, sample_shape
from pfl_benchmark.models.families import cnn, rnn
from pfl_benchmark.models.layers import Conv, DropoutSource, Layer, Linear, LowRank, Params
from pfl_benchmark.models.module import network_from_module
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.normalisation import BatchNorm
from pfl_benchmark.models.recurrent import CELLS, Recurrent
from pfl_benchmark.models.registry import ARCHITECTURES, Architecture, find_architecture, register_network
from pfl_benchmark.models.sequences import Conv1d, Embedding

__all__ = [
    "ARCHITECTURES",
    "CELLS",
    "NETWORKS",
    "OWN",
    "Architecture",
    "BatchNorm",
    "Conv",
    "Conv1d",
    "DropoutSource",
    "Embedding",
    "Layer",
    "Linear",
    "LowRank",
    "Network",
    "Params",
    "Recurrent",
    "adapt",
    "build_network",
    "cnn",
    "find_architecture",
    "network_from_module",
    "register_network",
    "rnn",
    "sample_shape",
]
