"""MNIST (LeCun, Bottou, Bengio and Haffner, 1998)."""

from __future__ import annotations

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.download import Download
from pfl_benchmark.datasets.layouts import IdxFiles, ParquetFiles

__all__ = ["INFO"]

INFO = DatasetInfo(
    name="mnist",
    title="MNIST",
    class_names=tuple("0123456789"),
    shape=(1, 28, 28),
    sizes=(60_000, 10_000),
    mean=(0.1307,),
    std=(0.3081,),
    layouts=(
        ParquetFiles("mnist"),
        IdxFiles("MNIST/raw", train="train", test="t10k"),
        IdxFiles("mnist", train="train", test="t10k"),
    ),
    download=Download("MNIST", folder="MNIST", what="four .gz files, 12 MB"),
    licence="none stated",
    citation=(
        'Y. LeCun et al., "Gradient-Based Learning Applied to Document Recognition", Proceedings of the IEEE '
        "86(11), 1998"
    ),
    network="cnn-emnist",
)
