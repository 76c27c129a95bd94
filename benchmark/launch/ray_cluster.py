"""``--launcher ray``: cells on a Ray cluster, or on one that is started on this machine for the purpose."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmark.engine.executors.threads import CORES_VARIABLE, available_cores
from benchmark.engine.files import write_text
from benchmark.errors import UserError
from benchmark.experiment.execution import Execution
from benchmark.launch.base import Launcher, Options, Outcome, Watcher
from benchmark.launch.foreman import Foreman
from benchmark.launch.ray_crew import RayCrew
from benchmark.launch.ray_shares import Machine, divide
from benchmark.launch.registry import register
from benchmark.records.environment import COMMIT_VARIABLE, commit
from benchmark.studies.grid import Cell

__all__ = ["RayCluster", "connect"]

_ROOT = Path(__file__).resolve().parents[2]
_NOT_SENT = ["/.venv", "/.git", "/results", "/tests"]  # of the checkout, to machines that join
_STORE_BYTES = 200_000_000  # of a cluster that is started here: records are written directly
_SECONDS_TO_CONNECT = 5.0


@register("ray")
def ray_cluster(options: Options) -> Launcher:
    """A cluster that is running, or a new one of this machine alone."""
    return RayCluster(options)


class RayCluster:
    """A `benchmark.launch.base.Launcher` of Ray actors.

    Raises:
        UserError: Ray is not installed, the cluster cannot be reached, or is too small for the jobs.
    """

    def __init__(self, options: Options) -> None:
        self._ray = _import_ray()
        address = options.address or os.environ.get("RAY_ADDRESS", "") or "local"
        self._ours = connect(self._ray, address)
        self._execution = _absolute(options.execution)
        self._crew: RayCrew | None = None
        self._marker = self._execution.results_dir / ".cache" / f"ray-{uuid.uuid4().hex}"
        self._quiet = contextlib.ExitStack()
        try:
            resources = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            machines = [Machine(int(r.get("CPU", 0)), int(r.get("GPU", 0))) for r in resources]
            self._shares = divide(machines, options.jobs, len(options.cells), options.execution.device)
        except UserError:
            self._leave()
            raise
        self.jobs = self._shares.jobs
        where = "this machine" if address == "local" else f"{len(machines)} machine(s) as fast as this one"
        self.place = f"on a Ray cluster of {where}, {self.jobs} at a time"

    def __enter__(self) -> RayCluster:
        # Ray prints the death of a worker to standard output, which is for results.
        self._quiet.enter_context(contextlib.redirect_stdout(io.StringIO()))
        return self

    def __exit__(self, *error: object) -> None:
        if self._crew is not None:
            self._crew.close(hurry=error[0] is not None)
        with contextlib.suppress(OSError):
            self._marker.unlink(missing_ok=True)
        self._leave()
        self._quiet.close()

    def _leave(self) -> None:
        if self._ours:
            self._ray.shutdown()

    def unavailable(self, cells: Sequence[Cell], download: bool = True) -> dict[str, str]:
        """As `Launcher.unavailable`; workers download nothing."""
        if not cells:
            return {}
        return self._workers(cells).lacking(cells)

    def run(self, cells: Sequence[Cell], execution: Execution, watcher: Watcher) -> Outcome:
        """As `Launcher.run`."""
        crew = self._workers(cells)
        for line in crew.remarks():
            watcher.note(line)
        return Foreman(crew, execution, watcher).run(cells)

    def _workers(self, cells: Sequence[Cell]) -> RayCrew:
        if self._crew is None:
            variables = {CORES_VARIABLE: str(self._shares.cpus), COMMIT_VARIABLE: commit()}
            if self._marker.parent.parent.exists():  # a dry run makes no folder
                self._marker.parent.mkdir(exist_ok=True)
                write_text(self._marker, self._marker.name)
            execution = dataclasses.replace(self._execution, side_by_side=self.jobs)
            self._crew = RayCrew(self._ray, self._shares, execution, variables, self._marker, cells)
        return self._crew


def connect(ray: Any, address: str) -> bool:
    """Join the cluster at `address`; says whether that is to be undone in the end.

    Args:
        address: ``HOST:PORT``, ``auto``, or ``local`` to start a cluster of this machine's cores and GPUs.

    Raises:
        UserError: nothing answers there.
    """
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address == "local":
        # Ray's workers yield to all else on a machine: where that is busy they would hardly ever begin.
        os.environ.setdefault("RAY_worker_niceness", "0")
        options.update(
            num_cpus=available_cores(),
            num_gpus=torch.cuda.device_count(),
            object_store_memory=_STORE_BYTES,
            include_dashboard=False,
        )
    else:
        _knock(address)
        # Machines of a cluster need not have this program, and never run another version of it.
        options["runtime_env"] = {"working_dir": str(_ROOT), "excludes": _NOT_SENT}
    try:
        with _handlers_kept(), _silenced():
            ray.init(address=address, **options)
    except Exception as error:  # of many kinds; what is to be done is the same
        ray.shutdown()
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"cannot use the Ray cluster '{address}': {reason.rstrip('.')}; start one with `ray start "
            "--head`, give its HOST:PORT as --address, and call this on one of its machines, with its "
            "RAY_AUTH_TOKEN if it asks for one; without --address one of this machine alone is used"
        ) from error
    return True


def _knock(address: str) -> None:
    """Find out in seconds whether anything listens at `address`; Ray itself goes on trying for minutes.

    Raises:
        UserError: no.
    """
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f"--address '{address}': expected HOST:PORT, such as 10.0.0.1:6379, or auto")
    try:
        socket.create_connection((host, int(port)), _SECONDS_TO_CONNECT).close()
    except OSError as error:
        raise UserError(
            f"no Ray cluster answers at {address} ({error.strerror or error}); start one there with "
            f"`ray start --head --port {port}`, or mend --address"
        ) from error


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # The default of a release to come, which Ray otherwise announces at length.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UserError(
            f"--launcher ray needs the package ray ({error}); install it with "
            f"`{sys.executable} -m pip install ray`, or use --launcher local"
        ) from error


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Ray takes the handler of SIGTERM for itself."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # not in the main thread, where Ray has not touched it
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Drop what is written to standard output and error, by Ray's C++ part as well."""
    with contextlib.ExitStack() as undo:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        undo.callback(os.close, nowhere)
        for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
            stream.flush()
            before = os.dup(number)
            undo.callback(os.close, before)
            undo.callback(os.dup2, before, number)
            os.dup2(nowhere, number)
        yield


def _absolute(execution: Execution) -> Execution:
    """With paths that mean the same to workers, whose current folder is another."""
    data_dir = execution.data_dir.absolute() if execution.data_dir else None
    return dataclasses.replace(execution, data_dir=data_dir, results_dir=execution.results_dir.absolute())
