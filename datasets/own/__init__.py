"""Data of one's own: ``--dataset folder:PATH``, ``parquet:PATH``, ``csv:PATH``.

A folder or file becomes an ordinary `DatasetInfo`, whose name ends with a checksum of what was read: other
samples are another dataset, and the same samples are the same dataset wherever they lie.
"""

from __future__ import annotations

from pfl_benchmark.datasets.own.describe import OWN_DATA, describe_own
from pfl_benchmark.datasets.own.place import OWN_KINDS, is_own, sized, with_columns

__all__ = ["OWN_DATA", "OWN_KINDS", "describe_own", "is_own", "sized", "with_columns"]
