"""Flags of the trackers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pfl_benchmark.config.flags import add_flag, path
from pfl_benchmark.errors import UserError, flag

if TYPE_CHECKING:
    from pfl_benchmark.track.base import Tracking


def add_tracking(group: argparse._ArgumentGroup) -> None:
    """Add the flags of Weights & Biases and TensorBoard."""
    text = (
        "log runs to Weights & Biases as well; offline: into RESULTS/wandb, for `wandb sync` "
        "(default: disabled)"
    )
    add_flag(group, "--wandb {online,offline,disabled}", text, default="disabled")
    text = "project there (default: the environment's WANDB_PROJECT, else pfl-benchmark)"
    add_flag(group, "--wandb-project NAME", text)
    text = "team or user there (default: the environment's WANDB_ENTITY, else that of the login)"
    add_flag(group, "--wandb-entity NAME", text)
    text = "log runs to TensorBoard as well, below this folder (`tensorboard --logdir DIR` shows them)"
    add_flag(group, "--tensorboard DIR", text, path)


def tracking_of(
    arguments: argparse.Namespace, studies: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[Tracking, ...]:
    """What the flags of `add_tracking` ask for, checked.

    Args:
        studies: names of the studies that use a run, by the hash of its configuration.

    Raises:
        UserError: it cannot work: no such mode, no package, no key.
    """
    asked = [*_wandb(arguments, studies or {}), *_tensorboard(arguments.tensorboard)]
    for tracking in asked:
        tracking.check()
    return tuple(asked)


def _tensorboard(folder: Path | None) -> Iterator[Tracking]:
    if folder is not None:
        from pfl_benchmark.track.tensorboard import TensorBoard

        yield TensorBoard(folder)


def _wandb(arguments: argparse.Namespace, studies: Mapping[str, tuple[str, ...]]) -> Iterator[Tracking]:
    if arguments.wandb == "disabled":
        for name in ("wandb_project", "wandb_entity"):
            if getattr(arguments, name):
                raise UserError(
                    f"{flag(name)} has a meaning only with --wandb online or offline; add that flag"
                )
        return
    from pfl_benchmark.track.weights_and_biases import PROJECT, WeightsAndBiases

    yield WeightsAndBiases(
        arguments.wandb,
        arguments.wandb_project or os.environ.get("WANDB_PROJECT") or PROJECT,
        arguments.wandb_entity or os.environ.get("WANDB_ENTITY") or "",
        studies,
    )
