"""``--launcher ray``: runs as tasks of a Ray cluster, or of one that is started on this machine for them."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pfl_benchmark.errors import UserError, optional
from pfl_benchmark.experiment.ray import connect, told_workers
from pfl_benchmark.experiment.runner import record_of
from pfl_benchmark.launch.base import Ended, Options, refuse_ray
from pfl_benchmark.launch.pool import WorkerPool
from pfl_benchmark.launch.ray_task import clean_up, look, read_files, work, write_files
from pfl_benchmark.launch.registry import register
from pfl_benchmark.records.same_data import Source, source_of
from pfl_benchmark.records.writer import Busy
from pfl_benchmark.resolve.run import resolve
from pfl_benchmark.studies.grid import PlannedRun

_SECONDS = 5.0  # for machines to clean up
_SECONDS_TO_LOOK = 120.0  # for what machines tell about themselves
ADDRESS = {
    "default": "",
    "metavar": "ADDRESS",
    "help": "of the Ray cluster: HOST:PORT, or auto for the one that this machine belongs to (default: the "
    "environment's RAY_ADDRESS, else a cluster of this machine alone, for as long as the command runs)",
}


@register("ray", "a Ray cluster", address=ADDRESS)
class RayCluster(WorkerPool):
    """A pool of Ray tasks; this process holds the locks of their records."""

    pause = 0.2

    def __init__(self, options: Options) -> None:
        refuse_ray(options, "with --launcher ray")
        if options.execution.trackings:
            raise UserError(
                "--launcher ray: what --wandb and --tensorboard write would stay on its machines; drop them, "
                "or use --launcher local or slurm"
            )
        self._ray = optional("ray", "--launcher ray", ", or use --launcher local")
        address = options.flags.get("address") or os.environ.get("RAY_ADDRESS") or "local"
        self._ours = connect(self._ray, address)
        have = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        machines = [(int(of["CPU"]), int(of.get("GPU", 0))) for of in have if of.get("CPU")]
        jobs, cpus, gpus = divide(machines, options.jobs, len(options.runs), options.execution.device)
        where = "this machine" if address == "local" else f"{len(machines)} machine(s) as fast as this one"
        execution = dataclasses.replace(options.execution.absolute(), side_by_side=jobs)
        super().__init__(jobs, f"on a Ray cluster of {where}, {jobs} at a time", execution)
        # Not retried by Ray, but by the pool: with the checkpoint that there is by then.
        once = {"max_retries": 0, "num_returns": "streaming"}
        self._work = self._ray.remote(num_cpus=cpus, num_gpus=gpus, **once)(work)
        self._variables = told_workers(cpus)
        self._scratch = uuid.uuid4().hex
        self._threads = ThreadPoolExecutor(jobs)  # each follows a task
        self._streams: list[Any] = []
        self._closed = False
        self._quiet = contextlib.redirect_stdout(io.StringIO())

    def __enter__(self) -> RayCluster:
        self._quiet.__enter__()  # Ray prints the death of a worker to standard output, which is for results
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            self._ray.shutdown()
        self._quiet.__exit__(None, None, None)

    def _on_every_node(self, function: Any, *arguments: Any) -> list[Any]:
        """Answers that are awaited."""
        remote = self._ray.remote(num_cpus=0)(function)
        nodes = [node["NodeID"] for node in self._ray.nodes() if node["Alive"]]
        selectors = [{"ray.io/node-id": node} for node in nodes]
        return [remote.options(label_selector=selector).remote(*arguments) for selector in selectors]

    def unavailable(self, runs: Sequence[PlannedRun], download: bool = True) -> dict[Source, str]:
        """As `Launcher.unavailable`: what some machine lacks; workers download nothing."""
        samples = list({source_of(run.config): run for run in runs}.values())
        answers = self._on_every_node(look, samples, self._execution.data_dir, self._variables)
        try:
            found = self._ray.get(answers, timeout=_SECONDS_TO_LOOK)
        except Exception as error:  # whatever keeps it from starting: most often a package
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
            raise UserError(
                f"a Ray worker cannot be started: {reason}; the machines of the cluster need the packages "
                "that this one has, at the same versions"
            ) from error
        return {
            source: f"on Ray worker {host}: {problem}"
            for host, absent in found
            for source, problem in absent.items()
        }

    def submit(self, runs: Sequence[PlannedRun]) -> Sequence[Future[Ended]]:
        return [self._threads.submit(self._follow, run) for run in runs]

    def _follow(self, run: PlannedRun) -> Ended:
        """Have a run run, and take in what comes of its record."""
        record = record_of(resolve(run.config), self._execution.results_dir)
        try:
            record.acquire()
        except Busy as error:
            return Ended("busy", problem=str(error))
        try:
            files = read_files(record.folder)
            stream = self._work.remote(run, self._execution, files, self._scratch, self._variables)
            self._streams.append(stream)
            if self._closed:  # too late for `close` to have seen it
                self._ray.cancel(stream, force=True)
            while not isinstance(told := self._ray.get(next(stream)), Ended):
                write_files(record.folder, told)
            return told
        finally:
            record.release()

    def close(self) -> None:
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for stream in self._streams:
            self._ray.cancel(stream, force=True)
        self._threads.shutdown()
        answers = self._on_every_node(clean_up, self._scratch)
        self._ray.wait(answers, num_returns=len(answers), timeout=_SECONDS)


def divide(
    machines: Sequence[tuple[int, int]], jobs: int | None, runs: int, device: str
) -> tuple[int, int, float]:
    """Runs at a time, and the CPUs and GPUs (perhaps a part of one) of each: so that all can be placed.

    Machines are numbers of CPUs and GPUs. Without `jobs` (None or 0) there is one a GPU where there are GPUs
    (and `device` allows), else one a CPU; UserError for more than CPUs, or a device that is not there.
    """
    with_gpu = [machine for machine in machines if machine[1] and device != "cpu"]
    if device not in ("auto", "cpu") and not (device == "cuda" and with_gpu):
        raise UserError(
            f"--device {device}: expected auto or cpu on this Ray cluster, or cuda if it has a GPU"
        )
    used = with_gpu or [(cpus, cpus) for cpus, _ in machines]
    most = sum(cpus for cpus, _ in used)
    wanted = jobs or min(most, sum(slots for _, slots in used))
    if not 1 <= wanted <= most:
        whose = "machines with a GPU have" if with_gpu else "Ray cluster has"
        raise UserError(
            f"--jobs {wanted}: every job needs a CPU, and the {whose} {most}; give --jobs {max(1, most)} or "
            "fewer, or add machines with `ray start --address`"
        )
    wanted = min(wanted, max(1, runs))

    def room(share: int, on_each: int) -> int:
        """For runs of `share` CPUs, of which `on_each` share a GPU."""
        return sum(min(cpus // share, slots * on_each) for cpus, slots in used)

    on_each = next(n for n in range(1, wanted + 1) if room(1, n) >= wanted)
    share = max(n for n in range(1, most + 1) if room(n, on_each) >= wanted)
    return wanted, share, 1 / on_each if with_gpu else 0.0
