"""The networks of the paper's experiments and of the small data sets.

The image nets are those of FedRep's repository (models/Nets.py, CNNCifar and CNNCifar100), whose sizes the
paper's transmitted shares confirm; the paper gives no sizes for EMNIST, so its net has FedRep's CNNMnist
layout without the Dropout2d. The text nets are ours: the paper says "a recurrent neural network, followed by
three fully connected layers" (units of FedRep's RNNSent, wide fully connected layers that can be reduced).
The digits and the synthetic tweets have small nets of the same families.
"""

from __future__ import annotations

from pfl_benchmark.models.families import cnn, rnn
from pfl_benchmark.models.network import Network
from pfl_benchmark.models.registry import Shape, register_network

FEDREP = "Collins et al., ICML 2021; lgcollins/FedRep models/Nets.py"


@register_network("cnn-cifar10", "CNN of the paper for CIFAR-10", FEDREP, least=16)
def cnn_cifar10(shape: Shape, classes: int) -> Network:
    """307,842 parameters for CIFAR-10."""
    return cnn(shape, classes, (64, 64), (120, 64))


@register_network("cnn-cifar100", "CNN of the paper for CIFAR-100", FEDREP, least=16)
def cnn_cifar100(shape: Shape, classes: int) -> Network:
    """1,075,044 parameters for CIFAR-100."""
    return cnn(shape, classes, (64, 128), (256, 128))


@register_network("cnn-emnist", "CNN for EMNIST and Fashion-MNIST", f"layout of {FEDREP}", least=16)
def cnn_emnist(shape: Shape, classes: int) -> Network:
    """245,274 parameters for EMNIST's letters."""
    return cnn(shape, classes, (64, 64), (128, 64))


@register_network("cnn-digits", "small CNN for digits", "same family", least=4)
def cnn_digits(shape: Shape, classes: int) -> Network:
    """15,466 parameters for digits of 8 × 8 pixels."""
    return cnn(shape, classes, (16, 32), (64, 32), kernel=3, padding=1)


@register_network("rnn-sent140", "recurrent network for Sent140", "units of FedRep's RNNSent", kind="words")
def rnn_sent140(shape: Shape, classes: int) -> Network:
    """286,338 parameters with the paper's word vectors of 300 dimensions."""
    return rnn(shape[0], classes, 128, (256, 128))


@register_network("rnn-tweets", "small recurrent network for tweets", "same family", kind="words")
def rnn_tweets(shape: Shape, classes: int) -> Network:
    """3,378 parameters with word vectors of 16 dimensions."""
    return rnn(shape[0], classes, 16, (32, 16))
