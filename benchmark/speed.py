"""How fast clients are trained: executors against each other, interleaved in one process.

Images are random: speed does not depend on what they show, so no dataset is needed. Every figure is the
median over repeats; compare figures of one call only, and quote ratios.
"""

from __future__ import annotations

import itertools
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from benchmark.engine.config import RunConfig
from benchmark.engine.executors import EXECUTORS
from benchmark.models import Network
from benchmark.runner import Execution, Prepared, prepare, with_hyper
from benchmark.settings import find_setting
from datasets import DATASETS, Dataset, Samples

__all__ = ["CELLS", "COHORTS", "CROWDS", "ceilings", "cells", "cohorts", "crowds"]

COHORT = 10
COHORTS = (1, 2, 5, 10, 20, 50, 100)
CROWDS = (100, 1_000, 10_000)

# Setting and local epochs of a timed call: about a second of plain training each.
CELLS = {"cifar10": ("cifar10-s2", 1), "digits": ("digits-s2", 5)}

Row = dict[str, Any]


def made_dataset(name: str, clients: int, config: RunConfig) -> Dataset:
    """Random images in the shape of a dataset, enough for every client."""
    info = DATASETS[name]
    rng = np.random.default_rng(0)

    def samples(each: int) -> Samples:
        count = 2 * clients * each + info.classes * each
        labels = np.arange(count) % info.classes
        return Samples(rng.integers(0, 256, (count, *info.shape), dtype=np.uint8), labels.astype(np.int64))

    train, test = samples(config.samples_per_client), samples(config.test_samples_per_client)
    return Dataset(
        name, train, test, info.classes, info.class_names, info.mean, info.std, source="random images"
    )


def ready(cell: str, executor: str, execution: Execution, algo: str = "fedavg", **changes: Any) -> Prepared:
    """Everything for timing calls of a cell, on random images."""
    setting, epochs = CELLS[cell]
    values = {**find_setting(setting).values, "local_epochs": epochs, **changes}
    config = with_hyper(RunConfig(algo=algo, **values), {})
    dataset = made_dataset(config.dataset, config.clients, config)
    return prepare(config, replace(execution, executor=executor), dataset)


def local_call(prepared: Prepared, cohort: list[int]) -> Callable[[], int]:
    """A function that trains `cohort` once and returns the samples processed."""
    algorithm = prepared.make(2)
    executor, device = prepared.task.executor, prepared.task.data.device

    def call() -> int:
        outcome = executor.train(algorithm.begin(cohort, algorithm.download(), 1))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return outcome.samples

    return call


def timed(calls: dict[str, Callable[[], int]], repeats: int) -> dict[str, tuple[float, int]]:
    """Median seconds and samples of each call: one warm-up, then the calls in turn, `repeats` times."""
    samples = {name: call() for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
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


@dataclass(frozen=True)
class Ceilings:
    """What the device can do: a large float32 matrix product and a large copy."""

    flops: float  # FLOP/s
    copy: float  # bytes read and written a second


def ceilings(device: torch.device) -> Ceilings:
    """Measure both on `device`."""
    size = 8192 if device.type == "cuda" else 1536
    left = torch.ones(size, size, device=device)
    block = torch.ones(64 * 2**20, dtype=torch.uint8, device=device)

    def product() -> int:
        (left @ left)[0, 0].item()
        return 0

    def copy() -> int:
        block.clone()[0].item()
        return 0

    result = timed({"product": product, "copy": copy}, 5)
    return Ceilings(2 * size**3 / result["product"][0], 2 * block.numel() / result["copy"][0])


def cells(execution: Execution, repeats: int, chosen: list[str]) -> Iterator[Row]:
    """Every executor on every chosen cell, a cohort of ten."""
    device = execution.pick_device()
    ceiling = ceilings(device)
    for cell in chosen:
        prepared = {name: ready(cell, name, execution) for name in EXECUTORS}
        results = timed({n: local_call(p, list(range(COHORT))) for n, p in prepared.items()}, repeats)
        network = prepared["loop"].task.network
        work = training_flops(network, DATASETS[prepared["loop"].config.dataset].shape)
        for name, (seconds, samples) in results.items():
            flops = work * samples / seconds
            yield {
                "cell": cell,
                "executor": name,
                "device": _device_name(device),
                "threads": torch.get_num_threads(),
                "clients": COHORT,
                "seconds": seconds,
                "samples_per_second": samples / seconds,
                "client_steps_per_second": samples / prepared[name].config.batch_size / seconds,
                "flops": flops,
                "share_of_product": flops / ceiling.flops,
                "product_flops": ceiling.flops,
                "copy_bytes_per_second": ceiling.copy,
                "times_loop": results["loop"][0] / seconds,
                "peak_memory": peak_memory(device),
            }
        for one in prepared.values():
            one.task.executor.close()


def cohorts(execution: Execution, repeats: int, cell: str, sizes: tuple[int, ...] = COHORTS) -> Iterator[Row]:
    """Seconds of a local call as the cohort grows."""
    for name in EXECUTORS:
        prepared = ready(cell, name, execution, clients=max(sizes))
        calls = {str(size): local_call(prepared, list(range(size))) for size in sizes}
        for size, (seconds, samples) in timed(calls, repeats).items():
            yield {
                "cell": cell,
                "executor": name,
                "device": _device_name(prepared.task.data.device),
                "clients": int(size),
                "seconds": seconds,
                "samples_per_second": samples / seconds,
            }
        prepared.task.executor.close()


def crowds(execution: Execution, repeats: int, sizes: tuple[int, ...] = CROWDS) -> Iterator[Row]:
    """Seconds of a FedPer round with ten participants as the number of clients grows, on digits."""
    for size in sizes:
        prepared = ready(
            "digits", execution.executor, execution, "fedper", clients=size, samples_per_client=20,
            test_samples_per_client=4, participation=COHORT / size,
        )  # fmt: skip
        rounds = ordinary_rounds(prepared)
        ((seconds, samples),) = timed({"round": lambda: next(rounds)}, 5 * repeats).values()  # noqa: B023
        yield {
            "cell": "digits",
            "executor": prepared.executor_name,
            "device": _device_name(prepared.task.data.device),
            "crowd": size,
            "clients": COHORT,
            "seconds": seconds,
            "samples_per_second": samples / seconds,
            "peak_memory": peak_memory(prepared.task.data.device),
        }
        prepared.task.executor.close()


def ordinary_rounds(prepared: Prepared) -> Iterator[int]:
    """Carry out round after round with a cohort each; yields the samples processed."""
    algorithm, executor = prepared.make(2**30), prepared.task.executor
    for number in itertools.count(1):
        cohort = prepared.schedule.cohort(number, full=False)
        outcome = executor.train(algorithm.begin(cohort, algorithm.download(), number))
        algorithm.keep(outcome)
        yield outcome.samples


def peak_memory(device: torch.device) -> int:
    """Largest memory so far in bytes: of the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
