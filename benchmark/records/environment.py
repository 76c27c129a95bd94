"""What a run was made with: versions, hardware, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pfl_benchmark import __version__
from pfl_benchmark.config.loaded import INSTALLED, LOADED
from pfl_benchmark.installation import CHECKOUT

_PROGRAM = ("algorithms", "benchmark", "datasets")
COMMIT_VARIABLE = "PFL_COMMIT"  # of the environment: of what code this is that was sent without its history
CORES_VARIABLE = "PFL_CORES"  # of the environment: a worker's share where several share a machine


def environment(device: torch.device, executor: str, installed: Iterable[str] = ()) -> dict[str, Any]:
    """Versions and hardware of this process, as JSON values; names no person, host or path.

    Of the plugins of installed packages only those `installed` that a run uses; others were asked for.
    """
    found = {
        "version": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),  # a plain string, which checkpoints can hold
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        # Processors of one name may have different vector instructions, and then give different floats.
        "processor": f"{_processor()} ({torch.backends.cpu.get_cpu_capability()})",
        "cores": available_cores(),
        "device": device_name(device),
        "executor": executor,
    }
    if device.type == "cuda":
        found |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    if plugins := {*installed, *(Path(plugin).name for plugin in LOADED.keys() - INSTALLED)}:
        found["plugins"] = ", ".join(sorted(plugins))
    return found


def available_cores() -> int:
    """Cores this process may use: what the system tells, and no more of them than its share."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = os.environ.get(CORES_VARIABLE, "")
    return min(max(1, int(share)), here) if share.isdecimal() else here


def device_name(device: torch.device) -> str:
    """The name of a GPU, or ``cpu``."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@cache
def commit() -> str:
    """The checkout's commit, with a plus sign if code differs from it; empty outside of git, and installed.

    Files that git does not know yet, such as a new method's, count where they are part of the program.
    """
    if COMMIT_VARIABLE in os.environ:
        return os.environ[COMMIT_VARIABLE]
    return _state(CHECKOUT) if CHECKOUT else ""


def _state(root: Path) -> str:
    try:
        top, commit = _git(root, "rev-parse", "--show-toplevel", "--short=12", "HEAD").splitlines()
        if not root.samefile(top):  # a copy without history, inside of something else that has one
            return ""
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "*.py")
        others = _git(root, "ls-files", "--others", "--exclude-standard", "--", *_PROGRAM).splitlines()
    except (OSError, subprocess.SubprocessError):
        return ""
    new = any(name.endswith((".py", "/")) for name in others)  # a folder: a repository of its own
    return commit + ("+" if changed or new else "")


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
