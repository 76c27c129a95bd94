"""Sentiment140 with its users (Go, Bhayani and Huang, 2009) and GloVe vectors (Pennington et al., 2014)."""

from __future__ import annotations

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.text.sent140 import WORDS, Sent140

__all__ = ["INFO"]

INFO = DatasetInfo(
    name="sent140",
    title="Sentiment140",
    class_names=("negative", "positive"),
    shape=(WORDS,),
    sizes=(1_600_000, 0),
    mean=(),
    std=(),
    reader=Sent140(),
    kind="words",
    licence="released for research; GloVe: PDDL 1.0",
    citation=(
        'A. Go, R. Bhayani and L. Huang, "Twitter Sentiment Classification using Distant Supervision", '
        '2009; J. Pennington et al., "GloVe: Global Vectors for Word Representation", EMNLP 2014'
    ),
    network="rnn-sent140",
)
