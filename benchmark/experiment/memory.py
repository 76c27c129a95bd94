"""The memory that is free for what clients keep."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

import torch

from pfl_benchmark.engine.executors.memory import free_bytes

_SHARE = 0.5  # of the memory that is free


def usual_budget(device: torch.device, side_by_side: int = 1) -> float:
    """Bytes that clients may keep in the memory of a device unless somebody says how many: half of the free.

    Args:
        side_by_side: runs that share it.
    """
    free = free_bytes(device) if device.type == "cuda" else _free_on_host()
    return math.inf if free is None else int(_SHARE * free / side_by_side)


def _free_on_host() -> int | None:
    """Memory that can be had without swapping, within the limit of a container; None: nobody can say."""
    with contextlib.suppress(OSError, ValueError, LookupError):
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * int(lines["MemAvailable"].split()[0])
        with contextlib.suppress(OSError, ValueError):  # "max", or another system of groups
            limit, used = (
                int(Path("/sys/fs/cgroup", name).read_text()) for name in ("memory.max", "memory.current")
            )
            free = min(free, max(0, limit - used))
        return free
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no Linux: of all that there is
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return None
