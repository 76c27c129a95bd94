"""Sharing the cores and GPUs of a machine among workers, so that they do not get in each other's way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from pfl_benchmark.records.environment import CORES_VARIABLE, available_cores


def confined(number: int, jobs: int, **variables: str) -> contextlib.AbstractContextManager[None]:
    """Confine this thread, and the threads and processes begun inside, to one of `jobs` shares of the cores.

    The processes get `variables` of the environment. Shares are numbered from 0, at least one core each.
    """
    count = available_cores()
    return _on(count * number // jobs, count * (number + 1) // jobs, variables)


def at_most(cores: int) -> contextlib.AbstractContextManager[None]:
    """Confine this thread, and the threads begun inside, to so many of the cores that it may use."""
    return _on(0, min(cores, available_cores()), {})


@contextlib.contextmanager
def _on(first: int, last: int, variables: dict[str, str]) -> Iterator[None]:
    variables[CORES_VARIABLE] = str(last - first)
    before = {name: os.environ[name] for name in variables if name in os.environ}
    threads = torch.get_num_threads()
    with contextlib.ExitStack() as undo:
        undo.callback(os.environ.update, before)
        for name in variables:
            undo.callback(os.environ.pop, name, None)
        os.environ.update(variables)
        if hasattr(os, "sched_setaffinity"):  # not on macOS, where the number alone must do
            all_cores = os.sched_getaffinity(0)
            undo.callback(os.sched_setaffinity, 0, all_cores)
            os.sched_setaffinity(0, sorted(all_cores)[first:last])
        undo.callback(torch.set_num_threads, threads)
        torch.set_num_threads(min(threads, last - first))
        yield


def use_share() -> None:
    """In a worker: let PyTorch use as many threads as this process may use cores."""
    torch.set_num_threads(available_cores())


def own_gpu(number: int, device: str) -> dict[str, str]:
    """Variables that show a worker one GPU only, where there are several; taken in turn by its number."""
    count = torch.cuda.device_count()
    if device not in ("auto", "cuda") or count < 2:
        return {}
    name = "CUDA_VISIBLE_DEVICES"
    visible = os.environ.get(name, "").split(",") if os.environ.get(name) else list(map(str, range(count)))
    return {name: visible[number % count]}
