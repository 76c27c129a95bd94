"""Layered networks with named split points.

A `Network` is an ordered tuple of named layers (conv1, conv2, fc1, fc2, fc3; for text rnn, fc1, fc2, fc3).
It holds no tensors: parameters live in a plain ``dict[str, Tensor]`` keyed ``"<layer>.<tensor>"``, so that
"the last t layers are personal", "send conv1 and conv2" and "replace fc1 by a rank-r pair" are dictionary
operations, and one description serves one client or a whole stacked cohort.

The image nets are those of FedRep's repository (models/Nets.py, CNNCifar and CNNCifar100), whose sizes
the paper's transmitted shares confirm. Pooling comes before ReLU: the values are the same, the work less.
The text net is ours: the paper says "a recurrent neural network, followed by three fully connected layers".
"""

from benchmark.models.catalogue import NETWORKS, build_network, cnn, rnn
from benchmark.models.layers import Conv, DropoutSource, Layer, Linear, LowRank, Params
from benchmark.models.network import Network
from benchmark.models.normalisation import BatchNorm
from benchmark.models.recurrent import CELLS, Recurrent

__all__ = [
    "CELLS",
    "NETWORKS",
    "BatchNorm",
    "Conv",
    "DropoutSource",
    "Layer",
    "Linear",
    "LowRank",
    "Network",
    "Params",
    "Recurrent",
    "build_network",
    "cnn",
    "rnn",
]
