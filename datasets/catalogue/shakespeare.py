"""Shakespeare's plays, a user a role: next-character prediction (LEAF: Caldas et al., 2018).

Texts of Project Gutenberg, public domain.
"""

from __future__ import annotations

from pfl_benchmark.datasets.data import DatasetInfo
from pfl_benchmark.datasets.people.plays import ALPHABET
from pfl_benchmark.datasets.people.shakespeare import LENGTH, Roles

__all__ = ["INFO"]

INFO = DatasetInfo(
    name="shakespeare",
    title="Shakespeare's roles",
    class_names=tuple({"\n": "newline", " ": "space"}.get(letter, letter) for letter in ALPHABET),
    shape=(LENGTH,),
    sizes=(404_326, 0),
    mean=(),
    std=(),
    reader=Roles(),
    kind="characters",
    symbols=len(ALPHABET),
    origin="files",
    licence="public domain (Project Gutenberg)",
    citation='S. Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097, 2018',
    network="rnn-characters",
)
