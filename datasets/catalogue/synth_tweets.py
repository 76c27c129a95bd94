"""Synthetic tweets with synthetic word vectors: the text path offline. No real data."""

from __future__ import annotations

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.text.synthetic import SyntheticTweets

__all__ = ["INFO"]

_SOURCE = SyntheticTweets()

INFO = DatasetInfo(
    name="synth-tweets",
    title="Synthetic tweets",
    class_names=("negative", "positive"),
    shape=(_SOURCE.words,),
    sizes=(1_258, 0),
    mean=(),
    std=(),
    reader=_SOURCE,
    kind="words",
    origin="synthetic, made here",
    licence="that of this project",
    citation="this project",
    network="rnn-tweets",
)
