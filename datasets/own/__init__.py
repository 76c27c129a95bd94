"""Images of one's own: ``--dataset folder:PATH`` and ``--dataset parquet:PATH``.

A folder or file becomes an ordinary `DatasetInfo`, whose name ends with a checksum of what was read: other
images are another dataset, and the same images are the same dataset wherever they lie.
"""

from __future__ import annotations

from pfl_benchmark.datasets.own.describe import OWN_DATA, OWN_KINDS, describe_own, is_own, with_columns

__all__ = ["OWN_DATA", "OWN_KINDS", "describe_own", "is_own", "with_columns"]
