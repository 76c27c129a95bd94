"""``doctor``: what this machine has for the benchmark, and what to do about what is missing."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmark.config.flags import add_data_dir, add_flag
from benchmark.errors import UserError

HELP = "Python, packages, cores, memory, disk, GPU and data of this machine, and what to do about gaps"
USAGE = "[--no-data] [flags]"
EXAMPLES = """\
  python -m benchmark doctor
  python -m benchmark doctor --no-data                 without reading the datasets
  python -m benchmark doctor --data-dir /my/data"""

# Packages that single features want, with those features.
_OPTIONAL = {
    "wandb": "--wandb",
    "ray": "--launcher ray",
    "submitit": "--launcher slurm",
    "optuna": "tune",
    "safetensors": "--save-models",
}
_LEAST_MEMORY, _LEAST_DISK = 4, 5  # GB that a run of the paper's scale and its data need


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_flag(parser, "--no-data", "do not look for datasets; reading them takes a minute the first time")
    add_data_dir(parser)


def execute(arguments: argparse.Namespace) -> None:
    """Print a line for each thing."""
    for line in _machine():
        print(line)
    if not arguments.no_data:
        print("\ndata")
        for line in _data(arguments.data_dir):
            print(line, flush=True)


def _machine() -> Iterator[str]:
    import torch

    from benchmark.engine.executors.threads import available_cores

    yield _line("Python", platform.python_version())
    for name in ("torch", "torchvision", "numpy", "pandas"):
        yield _line(name, _version(name) or "missing: call ./run_all.sh, which installs requirements.txt")
    if torch.cuda.is_available():
        found = torch.cuda.get_device_properties(0)
        yield _line("GPU", f"{found.name}, {found.total_memory / 1e9:.0f} GB; CUDA {torch.version.cuda}")
    else:
        build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a build without CUDA"
        yield _line("GPU", f"none that PyTorch can use ({build}); runs use the CPU")
    yield _line("cores", f"{available_cores()}; PFL_CORES=N uses fewer")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    little = f"; less than {_LEAST_MEMORY} GB: use --jobs 1" * (memory < _LEAST_MEMORY)
    yield _line("memory", f"{memory:.0f} GB{little}")
    free = shutil.disk_usage(Path()).free / 1e9
    little = f"; less than {_LEAST_DISK} GB: give --results-dir on another disk" * (free < _LEAST_DISK)
    yield _line("disk", f"{free:.0f} GB free here{little}")
    for name, feature in _OPTIONAL.items():
        wanted = f"not installed; only {feature} wants it: pip install {name}"
        yield _line(name, _version(name) or wanted)


def _data(data_dir: Path | None) -> Iterator[str]:
    from datasets import DATASETS, load

    for name, info in DATASETS.items():
        try:
            found = f"in place: {load(name, data_dir, download=False).source}"
        except UserError as error:
            found = str(error)
            if info.download is not None:
                found = (
                    f"not here; its first use downloads it, or fails with a reason (--data-dir: {data_dir})"
                )
        yield _line(name, found)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _line(name: str, text: str) -> str:
    return f"{name:<13} {text}"
