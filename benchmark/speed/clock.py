"""Timing, and what times are compared with."""

from __future__ import annotations

import contextlib
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from pfl_benchmark.engine.executors.memory import result_bytes
from pfl_benchmark.models import Network

__all__ = [
    "Ceilings",
    "ceilings",
    "peak_memory",
    "timed",
    "training_bytes",
    "training_flops",
    "wait_for",
]

Key = TypeVar("Key")


def wait_for(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(calls: Mapping[Key, Callable[[], int]], repeats: int) -> dict[Key, tuple[float, int]]:
    """Median seconds and samples of each call: one warm-up, then the calls in turn, `repeats` times."""
    samples = {name: call() for name, call in calls.items()}
    seconds: dict[Key, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - started)
    return {name: (statistics.median(values), samples[name]) for name, values in seconds.items()}


def training_flops(network: Network, shape: tuple[int, ...]) -> int:
    """Floating-point operations of one training sample, counted by PyTorch on a real step."""
    params = {k: v.requires_grad_() for k, v in network.init(np.random.default_rng(0)).items()}
    with FlopCounterMode(display=False) as counter:
        logits = network.apply(params, torch.zeros(1, *shape))
        torch.autograd.grad(cross_entropy(logits, torch.zeros(1, dtype=torch.long)), list(params.values()))
    return counter.get_total_flops()


def training_bytes(network: Network, shape: tuple[int, ...], batch: int) -> float:
    """Bytes that the operations of a training step write and read once, per sample; nothing is computed.

    Caches may serve some of them, so that the share of a copy's speed can be above 1.
    """
    params = {
        name: torch.empty(size, device="meta", requires_grad=True) for name, size in network.shapes().items()
    }
    x = torch.empty(batch, *shape, device="meta")
    y = torch.empty(batch, dtype=torch.int64, device="meta")
    written = result_bytes(
        lambda: torch.autograd.grad(cross_entropy(network.apply(params, x), y), list(params.values()))
    )
    return 2 * written / batch


@dataclass(frozen=True)
class Ceilings:
    """What the device can do: a large float32 matrix product and a large copy."""

    flops: float  # FLOP/s
    copy: float  # bytes read and written a second


def ceilings(device: torch.device) -> Ceilings:
    """Measure both on `device`."""
    size = 8192 if device.type == "cuda" else 1536
    left = torch.ones(size, size, device=device)
    block = torch.ones((1024 if device.type == "cuda" else 64) * 2**20, dtype=torch.uint8, device=device)

    def product() -> int:
        return int((left @ left)[0, 0])

    def copy() -> int:
        return int(block.clone()[0])

    result = timed({"product": product, "copy": copy}, 5)
    return Ceilings(2 * size**3 / result["product"][0], 2 * block.numel() / result["copy"][0])


def peak_memory(device: torch.device) -> int:
    """Largest memory so far in bytes: of the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError, StopIteration):
        # Linux: what getrusage tells of a process includes the process that started it.
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
