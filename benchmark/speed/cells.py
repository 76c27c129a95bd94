"""Every way to train on the same work, in turn."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from benchmark.config.settings import find_setting
from benchmark.engine.config import RunConfig
from benchmark.experiment.execution import Execution
from benchmark.models import build_network
from benchmark.speed.apart import seated
from benchmark.speed.clock import ceilings, device_name, training_bytes, training_flops
from benchmark.speed.workload import CELLS, COHORT, PLAIN, TRAINERS
from datasets import DATASETS

__all__ = ["cells"]


def cells(
    execution: Execution,
    repeats: int,
    chosen: Iterable[str],
    trainers: tuple[str, ...] = TRAINERS,
    apart: bool = True,
    epochs: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[dict[str, Any]]:
    """Each trainer on each chosen cell, a cohort of ten.

    Args:
        trainers: `plain`, `loop` and others.
        apart: give each a process of its own.
        epochs: local epochs of a timed call by cell, where not the paper's.
    """
    device = execution.pick_device()
    ceiling = ceilings(device)
    for cell in chosen:
        setting, own_epochs = CELLS[cell]
        config, local_epochs = RunConfig(**find_setting(setting).values), epochs.get(cell, own_epochs)
        network, shape = build_network(config.dataset), DATASETS[config.dataset].shape
        work, moved = training_flops(network, shape), training_bytes(network, shape, config.batch_size)
        with seated(cell, trainers, execution, local_epochs, apart) as seats:
            turns = [{name: seat.turn() for name, seat in seats.items()} for _ in range(repeats)]
        seconds = {name: statistics.median(turn[name].seconds for turn in turns) for name in seats}
        for name in seats:
            samples = turns[-1][name].samples
            flops = work * samples / seconds[name]
            yield {
                "part": "cells",
                "cell": cell,
                "executor": name,
                "device": device_name(device),
                "threads": torch.get_num_threads(),
                "clients": COHORT,
                "local_epochs": local_epochs,
                "repeats": repeats,
                "tf32": execution.tf32,
                "seconds": seconds[name],
                "samples_per_second": samples / seconds[name],
                "client_steps_per_second": samples / config.batch_size / seconds[name],
                "flops": flops,
                "share_of_product": flops / ceiling.flops,
                "product_flops": ceiling.flops,
                "share_of_copy": moved * samples / seconds[name] / ceiling.copy,
                "copy_bytes_per_second": ceiling.copy,
                **_times(turns, "loop", name),
                **_times(turns, PLAIN, name),
                "peak_memory": turns[-1][name].peak,
            }


def _times(turns: list[dict[str, Any]], base: str, name: str) -> dict[str, Any]:
    """How many times as fast as `base`: median, smallest and largest quotient of the times of one turn.

    Neighbouring turns are compared, which a change of the machine's mood leaves alone.
    """
    found = [turn[base].seconds / turn[name].seconds for turn in turns]
    return {f"times_{base}": statistics.median(found), f"times_{base}_range": [min(found), max(found)]}
