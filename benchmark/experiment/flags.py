"""Flags that say how runs are carried out."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from pfl_benchmark.config.flags import add_flag, memory

if TYPE_CHECKING:
    from pfl_benchmark.experiment.execution import Execution


def add_execution(group: argparse._ArgumentGroup) -> None:
    """Add the flags that say how runs are carried out: fields of `Execution` (see `execution_of`)."""
    text = (
        "cpu, cuda, cuda:N or mps; several: cuda:0,cuda:1 (default: auto, an NVIDIA GPU where there is one)"
    )
    add_flag(group, "--device NAME", text)
    text = "how clients are trained: loop, threads, stacked, or ray, by the machines of a Ray cluster"
    add_flag(group, "--executor NAME", f"{text} (default: auto, the fastest for the device)")
    text = "memory for what clients keep, such as 4GiB; more goes to a file (default: half of what is free)"
    add_client_memory(group, text)
    add_tf32(group)


def add_client_memory(group: argparse._ArgumentGroup, text: str) -> None:
    """Add ``--client-memory``; `text` is its help."""
    add_flag(group, "--client-memory SIZE", text, memory)


def add_tf32(group: argparse._ArgumentGroup) -> None:
    """Add ``--tf32``."""
    text = "use TF32 in products and convolutions on CUDA devices: faster, less exact (default: no)"
    add_flag(group, "--tf32", text, default=None)


def execution_of(arguments: argparse.Namespace) -> Execution:
    """The `Execution` that the flags ask for: every flag with the name of a field sets it, if it is given."""
    from pfl_benchmark.experiment.execution import Execution

    names = (spec.name for spec in dataclasses.fields(Execution))
    given = {name: value for name in names if (value := getattr(arguments, name, None)) is not None}
    return Execution(**given)
