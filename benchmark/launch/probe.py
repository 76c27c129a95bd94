"""``--jobs auto``: how many cells side by side make the most of this machine."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier

import torch

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.executors.threads import available_cores
from pfl_benchmark.experiment.estimate import Estimator
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.launch.cores import confined, use_share
from pfl_benchmark.resolve.plugins import load_plugins
from pfl_benchmark.studies.grid import Cell

__all__ = ["Reading", "automatic_jobs", "measure", "most_useful"]

SECONDS = 3.0  # of measurement with each number of jobs
GAIN = 1.1  # by which twice as many jobs must be faster to be worth their memory
SHARE = 0.5  # of the free memory that jobs may use by this measure: rounds with everyone take more


@dataclass(frozen=True)
class Reading:
    """What some jobs at once were measured to do.

    Attributes:
        rate: training samples a second, of all together.
        memory: bytes of the GPU's memory that one of them takes; 0 where there is no GPU.
    """

    rate: float
    memory: int = 0


def automatic_jobs(execution: Execution, cells: Sequence[Cell]) -> int:
    """A job a core on CPUs; on a GPU as many as its memory holds and as still make it faster."""
    device, cores = execution.pick_device(), available_cores()
    if device.type == "cpu" or not cells:
        return cores
    config = max((cell.config for cell in cells), key=lambda config: config.samples_per_client)
    free, _ = torch.cuda.mem_get_info(device)
    gpus = torch.cuda.device_count() if execution.device in ("auto", "cuda") else 1
    one = dataclasses.replace(execution, device=str(device))
    return min(cores, gpus * most_useful(lambda jobs: measure(jobs, config, one), free, cores))


def most_useful(measured: Callable[[int], Reading], free: int, cores: int) -> int:
    """Double the number of jobs as long as that pays; returns the last number that did.

    Args:
        free: bytes of memory of the GPU that are free.
        cores: one is needed by each job.
    """
    jobs, best = 1, measured(1)
    while 2 * jobs <= cores and 2 * jobs * best.memory <= SHARE * free:
        reading = measured(2 * jobs)
        if reading.rate < GAIN * best.rate:
            break
        jobs, best = 2 * jobs, reading
    return jobs


def measure(jobs: int, config: RunConfig, execution: Execution, seconds: float = SECONDS) -> Reading:
    """Let `jobs` processes train cohorts of `config` side by side on noise, for some seconds."""
    device, context = execution.pick_device(), get_context("spawn")
    before, warm = _free(device), context.Barrier(jobs)
    with ProcessPoolExecutor(jobs, context, _begin, (warm,)) as pool:
        futures = []
        for place in range(jobs):
            with confined(place, jobs):  # for the process that begins with this task
                futures.append(pool.submit(_train, config, execution, seconds))
        try:
            rates = [future.result() for future in futures]
        except RuntimeError:  # one of them has died or has run out of memory: so many do not fit
            return Reading(0.0)
        return Reading(sum(rates), (before - _free(device)) // jobs)  # which workers keep until they end


def _free(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0


# -- in a worker --------------------------------------------------------------------------------------------

_warm: Barrier  # where workers wait for each other


def _begin(warm: Barrier) -> None:
    global _warm
    _warm = warm
    use_share()


def _train(config: RunConfig, execution: Execution, seconds: float) -> float:
    """Samples a second in training, from when all workers are warm until time is up."""
    try:
        load_plugins()
        with Estimator((), execution).cohort(config, config.samples_per_client) as train:
            train()
            _warm.wait()
            samples, started = 0, time.perf_counter()
            while (spent := time.perf_counter() - started) < seconds:
                samples += train()
            return samples / spent
    except Exception:
        _warm.abort()  # the others need not wait
        raise
