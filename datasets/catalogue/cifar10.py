"""CIFAR-10 (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009)."""

from __future__ import annotations

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.download import Download
from pfl_benchmark.datasets.layouts import CifarPickles, ParquetFiles

__all__ = ["INFO"]

INFO = DatasetInfo(
    name="cifar10",
    title="CIFAR-10",
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    shape=(3, 32, 32),
    sizes=(50_000, 10_000),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    layouts=(
        ParquetFiles("cifar10"),
        CifarPickles(
            "cifar-10-batches-py",
            train=tuple(f"data_batch_{i}" for i in range(1, 6)),
            test=("test_batch",),
            labels="labels",
        ),
    ),
    download=Download("CIFAR10", folder="cifar-10-batches-py", what="cifar-10-python.tar.gz, 170 MB"),
    licence="none stated",
    citation='A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009',
    network="cnn-cifar10",
)
