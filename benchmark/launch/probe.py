"""``--jobs auto``: how many cells side by side make the most of this machine."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe
from multiprocessing.context import SpawnProcess

import torch

from benchmark.engine.config import RunConfig
from benchmark.engine.executors.threads import available_cores
from benchmark.engine.local import LocalCall, LocalModel, Phase
from benchmark.engine.params import expand
from benchmark.experiment.estimate import Estimator
from benchmark.experiment.execution import Execution
from benchmark.launch.cores import confined, use_share
from benchmark.studies.grid import Cell

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
    device = execution.pick_device()
    before = _free(device)
    workers: list[tuple[SpawnProcess, Connection]] = []
    try:
        for place in range(jobs):
            ours, theirs = Pipe()
            arguments = (theirs, config, execution, seconds)
            process = get_context("spawn").Process(target=_train, args=arguments, daemon=True)
            with confined(place, jobs):
                process.start()
            theirs.close()
            workers.append((process, ours))
        for _, connection in workers:
            connection.recv()  # it is warm
        for _, connection in workers:
            connection.send("go")
        results = [connection.recv() for _, connection in workers]
        memory = (before - _free(device)) // jobs
    except (EOFError, OSError):  # one of them is dead: so many do not fit
        return Reading(0.0)
    finally:
        for worker, _ in workers:
            worker.kill()
            worker.join()
    return Reading(sum(samples / spent for samples, spent in results), memory)


def _free(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0


def _train(connection: Connection, config: RunConfig, execution: Execution, seconds: float) -> None:
    """One of the processes: say when it is warm, then train until time is up and tell how much that was."""
    use_share()
    estimator = Estimator((), execution)
    algorithm, schedule = estimator.rehearse(config, config.samples_per_client)
    task, clients = algorithm.task, list(range(schedule.cohort_size))
    phase = Phase.of(task.network.names, config.lr, epochs=1)

    def train() -> int:
        model = LocalModel(task.network, expand(task.initial, len(clients)))
        outcome = task.executor.train(LocalCall(1, clients, {"model": model}, [phase]))
        float(outcome.loss.sum())  # waits for a GPU
        return outcome.samples

    train()
    connection.send("warm")
    connection.recv()
    samples, started = 0, time.perf_counter()
    while (spent := time.perf_counter() - started) < seconds:
        samples += train()
    connection.send((samples, spent))
    connection.recv()  # holds its memory until all have been measured
