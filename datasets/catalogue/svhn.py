"""Street View House Numbers, cropped digits (Netzer et al., 2011); the extra training images are left out."""

from __future__ import annotations

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.download import Download
from pfl_benchmark.datasets.layouts import MatFiles, ParquetFiles

__all__ = ["INFO"]

INFO = DatasetInfo(
    name="svhn",
    title="SVHN",
    class_names=tuple("0123456789"),
    shape=(3, 32, 32),
    sizes=(73_257, 26_032),
    mean=(0.4377, 0.4438, 0.4728),
    std=(0.1980, 0.2010, 0.1970),
    # torchvision puts the files into the folder that it is given, which is often the data folder itself.
    layouts=(ParquetFiles("svhn"), MatFiles("svhn"), MatFiles("SVHN"), MatFiles(".")),
    download=Download(
        "SVHN",
        folder="svhn",
        what="two .mat files, 246 MB",
        options={"split": "train"},
        more=({"split": "test"},),
        inside=True,
    ),
    licence="for non-commercial use only",
    citation=(
        'Y. Netzer et al., "Reading Digits in Natural Images with Unsupervised Feature Learning", NIPS '
        "workshop on deep learning, 2011"
    ),
    network="cnn-cifar10",
)
