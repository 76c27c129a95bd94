"""``--launcher slurm``: runs as a job array of a Slurm cluster, by submitit."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Sequence
from typing import Any

from pfl_benchmark.engine.exits import ENDING
from pfl_benchmark.errors import UserError, optional
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.processes import use_share
from pfl_benchmark.launch.base import Ended, Ending, Options, attempt, refuse_ray
from pfl_benchmark.launch.pool import Job, WorkerPool
from pfl_benchmark.launch.registry import register
from pfl_benchmark.studies.grid import PlannedRun

_ROOM = 1000  # of an array, by Slurm's own default
_AT_ONCE = 256  # of it, unless --jobs says otherwise
_TIMEOUTS = 20  # after which a run begins to count as lost; each time it goes on from its checkpoint
_OURS = ("array", "nodes", "ntasks", "ntasks_per_node", "output", "error", "signal", "requeue")


def pair(text: str) -> tuple[str, str]:
    """A key and its value; UserError for what is not KEY=VALUE."""
    key, _, value = text.partition("=")
    if not key or not value:
        raise UserError(f"--slurm is '{text}'; expected KEY=VALUE, such as partition=gpu")
    return key, value


SLURM = {
    "nargs": "+",
    "action": "extend",
    "default": [],
    "type": pair,
    "metavar": "KEY=VALUE",
    "help": "options of sbatch for each job of the array, such as partition=gpu time=8:00:00 "
    "gpus-per-node=1 cpus-per-task=4; time (minutes, or [DAYS-]HH:MM:SS) is needed, and a job that "
    "reaches it is queued again",
}


@register("slurm", "a job array", slurm=SLURM)
class Slurm(WorkerPool):
    """A pool of Slurm jobs; the results folder and the data must be where all nodes see them.

    Of submitit's clusters ``local`` has jobs run on this machine. What is not there is a UserError.
    """

    pause = 2.0

    def __init__(self, options: Options, cluster: str = "slurm") -> None:
        refuse_ray(options, "with --launcher slurm")
        self._wanted = parameters(options.flags.get("slurm", ()))
        self._submitit = optional("submitit", "--launcher slurm", ", or use --launcher local")
        if cluster == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
            raise UserError(
                "--launcher slurm needs Slurm's sbatch and srun on the path; call this on a login node of "
                "the cluster, or use --launcher local"
            )
        jobs = min(options.jobs or _AT_ONCE, max(1, len(options.runs)))
        super().__init__(jobs, f"on Slurm, {jobs} at a time", options.execution.absolute())
        self._cluster = cluster
        self._jobs: list[Any] = []

    def room(self, at_work: int) -> int:
        """An array has those that wait, too; beside one there are only as many as it has places free."""
        return super().room(at_work) if at_work else _ROOM

    def submit(self, runs: Sequence[PlannedRun]) -> Sequence[Job]:
        """As `WorkerPool.submit`: one array; UserError where Slurm does not take it."""
        folder = self._execution.results_dir / ".cache" / "slurm"
        try:
            options = {"cluster": self._cluster, "slurm_max_num_timeout": _TIMEOUTS}
            executor = self._submitit.AutoExecutor(folder, **options)
            parallel = {"slurm_array_parallelism": min(self.jobs, len(runs))}
            executor.update_parameters(name="pfl-benchmark", **parallel, **self._wanted)
            jobs = executor.map_array(_Resumable(), runs, [self._execution] * len(runs))
        except Exception as error:  # of many kinds: a partition that is none, a limit of the account
            reason = " ".join(str(error).split())
            raise UserError(f"Slurm does not take the jobs: {reason}; mend --slurm") from error
        self._jobs += jobs
        return jobs

    def close(self) -> None:
        for job in self._jobs:
            with contextlib.suppress(Exception):  # one that ends just now
                if not job.done():
                    job.cancel(check=False)
        self._jobs.clear()


class _Resumable:
    """`attempt` in a job; at the end of its time, or when it is preempted, submitit queues it again."""

    def __call__(self, run: PlannedRun, execution: Execution) -> Ended:
        use_share()
        return attempt(run, execution, Ending())

    def checkpoint(self, run: PlannedRun, execution: Execution) -> Any:
        """The same once more, from its own checkpoint; submitit raises SystemExit after this."""
        from submitit.helpers import DelayedSubmission

        ENDING.set()
        return DelayedSubmission(self, run, execution)


def parameters(given: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """What ``--slurm KEY=VALUE ...`` asks of `submitit.AutoExecutor`; keys are sbatch's long options."""
    wanted = {key.replace("-", "_"): value for key, value in given}
    if refused := [key for key in wanted if key in _OURS]:
        raise UserError(
            f"--slurm {refused[0]}=...: a run is one task on one node; drop it (--jobs sets how many)"
        )
    if "time" not in wanted:
        raise UserError("--launcher slurm needs a time limit for each job: add --slurm time=MINUTES")
    found: dict[str, Any] = {"timeout_min": _minutes(wanted.pop("time"))}
    for key in ("cpus_per_task", "gpus_per_node"):  # which srun must be told as well
        if key in wanted:
            value = wanted.pop(key)
            if not value.isdecimal():
                raise UserError(f"--slurm {key}={value}: expected a whole number")
            found[key] = int(value)
    return {**found, "slurm_additional_parameters": wanted}


def _minutes(text: str) -> int:
    match = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):(\d\d):(\d\d)|(\d+))", text)
    days, hours, minutes, seconds, alone = (int(part or 0) for part in match.groups()) if match else [0] * 5
    total = alone + 24 * 60 * days + 60 * hours + minutes + (seconds > 0)
    if not total:
        raise UserError(f"--slurm time={text}: expected minutes, such as 90, or [DAYS-]HH:MM:SS")
    return total
