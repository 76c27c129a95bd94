"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017)."""

from __future__ import annotations

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.download import Download
from pfl_benchmark.datasets.layouts import IdxFiles, ParquetFiles

__all__ = ["INFO"]

INFO = DatasetInfo(
    name="fmnist",
    title="Fashion-MNIST",
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    shape=(1, 28, 28),
    sizes=(60_000, 10_000),
    mean=(0.2860,),
    std=(0.3530,),
    layouts=(
        ParquetFiles("fmnist"),
        IdxFiles("FashionMNIST/raw", train="train", test="t10k"),
        # Debian's package dataset-fashion-mnist.
        IdxFiles("/usr/share/datasets/fashion-mnist", train="train", test="t10k"),
    ),
    download=Download("FashionMNIST", folder="FashionMNIST", what="four .gz files, 31 MB"),
    licence="MIT",
    citation=(
        'H. Xiao, K. Rasul and R. Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine '
        'Learning Algorithms", arXiv:1708.07747, 2017'
    ),
    network="cnn-emnist",
)
