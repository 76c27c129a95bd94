"""``--launcher local``: this machine."""

from __future__ import annotations

from benchmark.engine.executors.threads import available_cores
from benchmark.errors import UserError
from benchmark.launch.base import Launcher, Options
from benchmark.launch.probe import automatic_jobs
from benchmark.launch.processes import Processes
from benchmark.launch.registry import register
from benchmark.launch.sequential import Sequential

__all__ = ["local"]


@register("local")
def local(options: Options) -> Launcher:
    """One cell after the other in this process, or several in processes of their own.

    Raises:
        UserError: more jobs than cores, or an address.
    """
    if options.address:
        raise UserError("--address is that of a Ray cluster; add --launcher ray, or drop it")
    jobs, cores = options.jobs, available_cores()
    if jobs is None:
        jobs = 1
    elif jobs == 0:
        jobs = automatic_jobs(options.execution, options.cells)
    elif jobs > cores:
        raise UserError(
            f"--jobs {jobs}: every job needs a core, and there are {cores} here; give --jobs {cores} or "
            "fewer, or use more machines with --launcher ray"
        )
    jobs = min(jobs, max(1, len(options.cells)))  # more would have nothing to do, and leave cores idle
    return Sequential(options.execution) if jobs == 1 else Processes(jobs, options.execution)
