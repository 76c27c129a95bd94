"""FEMNIST: characters by their writers (LEAF: Caldas et al., 2018; EMNIST: Cohen et al., 2017).

Digits, capitals and small letters of NIST Special Database 19, a user a writer.
"""

from __future__ import annotations

import string

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.people.femnist import Writers

__all__ = ["INFO"]

INFO = DatasetInfo(
    name="femnist",
    title="FEMNIST by writer",
    class_names=tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase),
    shape=(1, 28, 28),
    sizes=(814_277, 0),  # of the Hub's flwrlabs/femnist; LEAF leaves writers out, and has fewer
    # In use for LEAF's images, white paper with black ink.
    mean=(0.9637,),
    std=(0.1597,),
    reader=Writers(),
    origin="files",
    licence="LEAF: BSD 2-clause; derived from NIST Special Database 19",
    citation='S. Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, 2018',
    network="cnn-emnist",
)
