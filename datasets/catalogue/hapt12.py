"""The recordings of `hapt` with all twelve activities: the six basic ones and the postural transitions.

Transitions are short and rare: many windows of 2.56 s do not fit into one.
"""

from __future__ import annotations

from dataclasses import replace

from pfl_benchmark.datasets.catalogue.hapt import INFO as BASIC

__all__ = ["INFO"]

INFO = replace(
    BASIC,
    name="hapt12",
    title="Twelve activities of thirty people (HAPT)",
    class_names=(
        *BASIC.class_names,
        "stand to sit",
        "sit to stand",
        "sit to lie",
        "lie to sit",
        "stand to lie",
        "lie to stand",
    ),
    sizes=(10_929, 0),
)
