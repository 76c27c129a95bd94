"""How many cells a Ray cluster runs at a time, and which share of its CPUs and GPUs each gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.errors import UserError

__all__ = ["Machine", "Shares", "divide"]


@dataclass(frozen=True)
class Machine:
    """What Ray may use of a machine."""

    cpus: int
    gpus: int = 0


@dataclass(frozen=True)
class Shares:
    """Cells at a time, and what each of them gets (of a GPU perhaps a part)."""

    jobs: int
    cpus: int
    gpus: float


def divide(machines: Sequence[Machine], jobs: int | None, cells: int, device: str) -> Shares:
    """Divide a cluster among cells so that all of them can be placed.

    Args:
        jobs: as asked for; None or 0: one a GPU where there are GPUs (and `device` allows), else one a CPU.
        cells: how many there are; more jobs would have nothing to do.
        device: ``auto``, ``cpu`` or ``cuda``.

    Raises:
        UserError: more jobs than CPUs, or no GPU where one is asked for.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {device} has no meaning on a Ray cluster; expected auto, cpu or cuda")
    with_gpu = [machine for machine in machines if machine.gpus]
    if device == "cuda" and not with_gpu:
        raise UserError(
            "--device cuda: the Ray cluster has no GPU; use --device cpu, or add a machine with one"
        )
    on_gpus = bool(with_gpu) and device != "cpu"
    used = with_gpu if on_gpus else list(machines)
    cpus, gpus = sum(machine.cpus for machine in used), sum(machine.gpus for machine in used)
    wanted = jobs or (min(gpus, cpus) if on_gpus else cpus)
    if not 1 <= wanted <= cpus:
        whose = "machines with a GPU have" if on_gpus else "Ray cluster has"
        raise UserError(
            f"--jobs {wanted}: every job needs a CPU, and the {whose} {cpus}; give --jobs {max(1, cpus)} or "
            "fewer, or add machines with `ray start --address`"
        )
    wanted = min(wanted, max(1, cells))
    on_each = math.ceil(wanted / gpus) if on_gpus else 0  # cells that share a GPU
    for share in range(max(machine.cpus for machine in used), 0, -1):
        places = [
            min(machine.cpus // share, machine.gpus * on_each) if on_gpus else machine.cpus // share
            for machine in used
        ]
        if sum(places) >= wanted:
            return Shares(wanted, share, 1 / on_each if on_gpus else 0.0)
    most = sum(min(machine.cpus, machine.gpus * on_each) for machine in used)
    raise UserError(
        f"--jobs {wanted}: the machines of the Ray cluster have room for {most}; give at most that"
    )
