"""What a run was made with (versions, hardware, commit), and what of that decides its rounds."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
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
Origin = dict[str, Any]
"""A stretch of rounds computed alike: ``from_round`` and, as far as known, what the floats depend on."""

# What decides the floats, besides configuration and split: the code, and these entries of an environment.
# (Cores: PyTorch sums otherwise on more threads, and stacks of clients are cut by them.)
_DECIDING = ("code", "torch", "numpy", "processor", "cores", "device", "executor", "workers", "tf32")


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


def is_committed(file: Path) -> bool:
    """Whether a file belongs to a git repository; False where git does not tell."""
    try:
        _git(file.parent, "ls-files", "--error-unmatch", "--", file.name)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


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


def deciding(environment: Mapping[str, Any]) -> dict[str, Any]:
    """What the floats computed in this environment depend on."""
    return {name: environment[name] for name in _DECIDING if name in environment}


def continued(origins: Sequence[Origin], done: int, environment: Mapping[str, Any]) -> list[Origin]:
    """The stretches of a run that goes on after round `done` in this environment."""
    here = deciding(environment)
    if origins and all(origins[-1].get(name) == here.get(name) for name in _DECIDING):
        return list(origins)
    about = {"commit": environment["commit"]} if "commit" in environment else {}
    return [*origins, {"from_round": done + 1 if origins else 1, **about, **here}]


def foreign_rounds(origins: Sequence[Origin]) -> list[str]:
    """One line for every stretch of rounds that was computed otherwise than the last."""
    lines = []
    for number, origin in enumerate(origins[:-1], 1):
        different = [name for name in _DECIDING if origin.get(name) != origins[-1].get(name)]
        first, last = origin["from_round"], origins[number]["from_round"] - 1
        if different:
            rounds = f"rounds {first}-{last} were" if first < last else f"round {first} was"
            lines.append(f"{rounds} computed with {', '.join(_in_words(origin, n) for n in different)}")
    return lines


def _in_words(origin: Origin, name: str) -> str:
    if name not in origin:
        return f"unknown {name}"
    if name == "code":
        return f"other code (commit {origin['commit']})" if origin.get("commit") else "other code"
    return f"{name} {origin[name]}"
