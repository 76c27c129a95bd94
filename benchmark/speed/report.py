"""Measuring parts, and the file that measurements are kept in."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.records.environment import device_name, environment
from pfl_benchmark.records.files import write_json
from pfl_benchmark.speed.parts import PARTS, Row, Sizes
from pfl_benchmark.speed.tables import TABLES

FORMAT = 1


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
    about |= {"threads": torch.get_num_threads(), "kind": device.type}
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
        if not all(row["part"] in TABLES for row in found["rows"]):
            raise ValueError("unknown parts")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"cannot read {path} ({error}); give a file that --output wrote") from error
    return found
