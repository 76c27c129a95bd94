"""The parts of a measurement, their sizes, and the file they are kept in."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.records.environment import device_name, environment
from pfl_benchmark.records.files import write_json
from pfl_benchmark.speed.cells import cells
from pfl_benchmark.speed.equality import VARIANTS, equality
from pfl_benchmark.speed.growth import COHORTS, CROWDS, cohorts, crowds
from pfl_benchmark.speed.kernels import kernels
from pfl_benchmark.speed.runs import side_by_side, whole_runs
from pfl_benchmark.speed.tables import TABLES
from pfl_benchmark.speed.workload import CELLS, PLAIN, TRAINERS

__all__ = ["PARTS", "Sizes", "load", "measure", "save", "sizes_for"]

Row = dict[str, Any]
FORMAT = 1


@dataclass(frozen=True)
class Sizes:
    """How much is measured. The defaults are for a GPU, where all parts together take some minutes."""

    repeats: int = 5
    cells: tuple[str, ...] = tuple(CELLS)
    epochs: Mapping[str, int] = field(default_factory=dict)  # of a call, by cell; others take the paper's
    trainers: tuple[str, ...] = TRAINERS
    apart: bool = True
    cohort_cell: str = "cifar10"
    cohorts: tuple[int, ...] = COHORTS
    crowds: tuple[int, ...] = CROWDS
    variants: tuple[tuple[str, str | None], ...] = VARIANTS
    setting: str = "cifar10-s2"
    rounds: int = 160  # of the whole runs
    side_rounds: int = 16  # of the runs side by side
    side_runs: int = 20
    jobs: int = 4


def sizes_for(
    device: torch.device, repeats: int, chosen: Iterable[str] = (), epochs: int | None = None
) -> Sizes:
    """Sizes for a device: on CPUs whole runs are small ones.

    Args:
        chosen: limits the cells.
        epochs: of a timed call; None: the paper's, but on CPUs one of cifar10, which takes long enough.
    """
    picked = tuple(chosen) or tuple(CELLS)
    asked = dict.fromkeys(picked, epochs) if epochs else {}
    if device.type == "cuda":
        # `threads` is for CPUs; a loop's calls take seconds each.
        trainers = tuple(name for name in TRAINERS if name != "threads")
        return Sizes(
            repeats, cells=picked, epochs=asked, trainers=trainers, cohort_cell=picked[0],
            cohorts=(1, 5, 10, 20, 50),
        )  # fmt: skip
    return Sizes(
        repeats, cells=picked, epochs=asked or {"cifar10": 1}, cohort_cell=picked[-1], setting="digits-s2",
        rounds=8, side_rounds=8, side_runs=4, jobs=2,
    )  # fmt: skip


def _tf32(execution: Execution, sizes: Sizes) -> Iterator[Row]:
    """Nothing on CPUs, which have no TF32."""
    if execution.pick_device().type == "cuda":
        for allowed in (False, True):
            e = replace(execution, tf32=allowed)
            yield from cells(e, sizes.repeats, sizes.cells[:1], sizes.trainers, sizes.apart)


PARTS: dict[str, Callable[[Execution, Sizes], Iterator[Row]]] = {
    "cells": lambda e, s: cells(e, s.repeats, s.cells, s.trainers, s.apart, s.epochs),
    "cohorts": lambda e, s: cohorts(
        e, s.repeats, s.cohort_cell, s.cohorts, [name for name in s.trainers if name != PLAIN]
    ),
    "crowds": lambda e, s: crowds(e, s.repeats, s.crowds),
    "equality": lambda e, s: equality(e, s.cells, variants=s.variants),
    "kernels": lambda e, s: kernels(e, s.repeats, s.cells),
    "tf32": _tf32,
    "runs": lambda e, s: whole_runs(e, s.setting, s.rounds),
    "side-by-side": lambda e, s: side_by_side(e, s.setting, s.side_rounds, s.side_runs, s.jobs),
}


def measure(
    parts: Iterable[str],
    execution: Execution,
    sizes: Sizes,
    say: Callable[[str], object],
    keep: Callable[[list[Row]], object] = lambda rows: None,
) -> tuple[list[Row], list[str]]:
    """Measure some parts, one after the other.

    Args:
        say: is told what comes next.
        keep: is given all rows so far after every part, so that a later fault loses nothing.

    Returns:
        The rows, and the parts in which a fault came up; its traceback has been printed.
    """
    rows: list[Row] = []
    failed, device = [], device_name(execution.pick_device())
    for part in parts:
        say(f"{part}: {TABLES[part][0]}")
        try:
            for row in PARTS[part](execution, sizes):
                about = {"part": part, "device": device, "threads": torch.get_num_threads()}
                rows.append({**about, "tf32": execution.tf32, **row})
        except UserError:
            raise
        except Exception:
            traceback.print_exc()
            failed.append(part)
        keep(rows)
    return rows, failed


def save(path: Path, rows: list[Row], execution: Execution) -> None:
    """Write rows and where they were measured, at once.

    Raises:
        UserError: the file cannot be written.
    """
    device = execution.pick_device()
    about = environment(device, execution.executor)
    about["threads"] = torch.get_num_threads()
    about["kind"] = device.type
    if device.type == "cuda":
        about["device_memory"] = torch.cuda.get_device_properties(device).total_memory
    write_json(path, {"format": FORMAT, "environment": about, "rows": rows})


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote.

    Raises:
        UserError: there is no such file, or it is none of `save`.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT or not isinstance(found["environment"]["kind"], str):
            raise ValueError("another format")
        rows = found["rows"]
        if not all(row["part"] in PARTS for row in rows):
            raise ValueError("unknown parts")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}; give a file of --output") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is no measurement of this version ({error}); make it again with --output"
        ) from error
    return found
