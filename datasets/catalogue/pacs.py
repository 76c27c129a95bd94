"""PACS: seven classes of pictures in four domains (Li, Yang, Song and Hospedales, 2017).

A domain's pictures are divided among clients of its own (`--partition domains`), so that clients differ in
how their pictures look; `pacs@64` scales to 64 pixels a side instead of 32.
"""

from __future__ import annotations

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.people.pacs import DOMAINS, Domains

__all__ = ["INFO"]

INFO = DatasetInfo(
    name="pacs",
    title="PACS",
    class_names=("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
    shape=(3, 32, 32),
    sizes=(9_991, 0),
    # Over all images at 32 pixels a side; others are close.
    mean=(0.7627, 0.7434, 0.7146),
    std=(0.2761, 0.2867, 0.3163),
    reader=Domains(),
    user_names=DOMAINS,
    origin="files",
    licence="none stated",
    citation='D. Li et al., "Deeper, Broader and Artier Domain Generalization", ICCV 2017',
    network="cnn-cifar10",
)
