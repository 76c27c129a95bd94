"""EMNIST Letters, upper and lower case merged (Cohen, Afshar, Tapson and van Schaik, 2017)."""

from __future__ import annotations

import string

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.download import Download
from pfl_benchmark.datasets.layouts import IdxFiles, ParquetFiles

__all__ = ["INFO"]

INFO = DatasetInfo(
    name="emnist",
    title="EMNIST Letters",
    class_names=tuple(string.ascii_uppercase),
    shape=(1, 28, 28),
    sizes=(124_800, 20_800),
    # The constants in common use for the letters split.
    mean=(0.1722,),
    std=(0.3309,),
    first_label=1,
    layouts=(
        ParquetFiles("emnist"),
        # The official files hold every image transposed; the parquet files are expected upright.
        IdxFiles("EMNIST/raw", train="emnist-letters-train", test="emnist-letters-test", transposed=True),
    ),
    download=Download("EMNIST", folder="EMNIST", what="gzip.zip, 562 MB", options={"split": "letters"}),
    licence="none stated; derived from NIST Special Database 19",
    citation='G. Cohen et al., "EMNIST: Extending MNIST to Handwritten Letters", IJCNN 2017',
    network="cnn-emnist",
)
