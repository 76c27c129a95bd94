"""Flags that say how runs are carried out."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmark.experiment.execution import Execution

__all__ = ["add_execution", "add_tf32", "execution_of"]


def add_execution(group: argparse._ArgumentGroup) -> None:
    """Add the flags that say how runs are carried out: fields of `Execution` (see `execution_of`)."""
    group.add_argument(
        "--device", metavar="NAME", help="cpu, cuda or cuda:N (default: auto, a GPU where there is one)"
    )
    group.add_argument(
        "--executor",
        metavar="NAME",
        help="how clients are trained (default: auto, the fastest for the device)",
    )
    add_tf32(group)


def add_tf32(group: argparse._ArgumentGroup) -> None:
    """Add ``--tf32``."""
    group.add_argument(
        "--tf32",
        action="store_true",
        default=None,
        help="use TF32 in products and convolutions on CUDA devices: faster, less exact (default: no)",
    )


def execution_of(arguments: argparse.Namespace, **fixed: Any) -> Execution:
    """The `Execution` that the flags ask for: every flag with the name of a field sets it, if it is given.

    Args:
        fixed: fields that no flag of the command sets.
    """
    from benchmark.experiment.execution import Execution

    execution = Execution(**fixed)
    chosen: dict[str, Any] = {
        spec.name: getattr(arguments, spec.name, None) for spec in dataclasses.fields(execution)
    }
    chosen = {name: value for name, value in chosen.items() if value is not None and name not in fixed}
    return dataclasses.replace(execution, **chosen)
