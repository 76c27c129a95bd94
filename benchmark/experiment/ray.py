"""A Ray cluster: joining it, and its machines as workers of one run."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import torch

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.weights import FILES
from pfl_benchmark.datasets.own import OWN_DATA
from pfl_benchmark.engine.executors.divided import Worker
from pfl_benchmark.errors import UserError, optional
from pfl_benchmark.experiment.execution import Execution
from pfl_benchmark.experiment.processes import use_share
from pfl_benchmark.experiment.replicas import begin, begun, serve, translated
from pfl_benchmark.installation import PACKAGE
from pfl_benchmark.records.environment import COMMIT_VARIABLE, CORES_VARIABLE, available_cores, commit
from pfl_benchmark.resolve.plugins import VARIABLE

_SECONDS = 5.0  # for a cluster to answer
_SECONDS_TO_BEGIN = 600.0  # for a worker to be placed and to load the data

SETTINGS = {  # of Ray, by its environment
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the default to come, which is otherwise announced at length
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_worker_niceness": "0",  # Ray's workers yield to all else: on a busy machine they hardly ever begin
}


def connect(ray: Any, address: str) -> bool:
    """Join the cluster at `address` (``local``: start one); says whether that is to be undone in the end."""
    if ray.is_initialized():
        return False
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address == "local":
        options |= {"num_cpus": available_cores(), "num_gpus": torch.cuda.device_count()}
        options |= {"include_dashboard": False}
    else:
        # Machines of a cluster need not have this program, and never run another version of it. Ray follows
        # the links of a checkout, so that the package is whole.
        options["runtime_env"] = {"py_modules": [str(PACKAGE)], "excludes": ["__pycache__"]}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if address not in ("local", "auto"):  # Ray itself would go on trying for minutes
            host, _, port = address.removeprefix("ray://").rpartition(":")
            if not host or not port.isdecimal():
                raise ValueError("expected HOST:PORT, such as 10.0.0.1:6379")
            socket.create_connection((host, int(port)), _SECONDS).close()
        ray.init(address=address, **options)
    except Exception as error:  # of many kinds; what is to be done is the same
        ray.shutdown()
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"cannot use the Ray cluster '{address}': {reason.rstrip('.')}; start one with `ray start "
            "--head`, give its HOST:PORT (or auto) as --address, and call this on one of its machines, with "
            "its RAY_AUTH_TOKEN if it asks for one; without --address one of this machine alone is used"
        ) from error
    finally:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTERM, handler)  # which Ray takes for itself
    return True


def ray_workers(config: RunConfig, execution: Execution) -> Sequence[Worker]:
    """A worker for each GPU of the cluster, or for each machine where it has none.

    Raises:
        UserError: the cluster cannot be joined, or a worker cannot begin on it.
    """
    cluster = _Cluster()
    places = cluster.places()
    if not places:
        cluster.leave()
        raise UserError("--executor ray: no machine of the cluster has a core; add one with `ray start`")
    return begun([RayWorker(cluster, config, execution, place) for place in places])


@dataclass(frozen=True)
class _Place:
    """Where a worker may be: a machine, and its share of the machine's cores and GPUs."""

    node: str
    machine: str
    cores: int
    gpus: int


class _Cluster:
    """The cluster that a run has joined, until the last of its workers has left."""

    def __init__(self) -> None:
        self.ray = optional("ray", "--executor ray", ", or use another --executor")
        self._ours = connect(self.ray, os.environ.get("RAY_ADDRESS") or "local")

    def places(self) -> list[_Place]:
        """Where a worker may be now."""
        found = []
        nodes = [node for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        with_gpu = [node for node in nodes if node["Resources"].get("GPU")]
        for node in with_gpu or nodes:
            count = int(node["Resources"]["GPU"]) if with_gpu else 1
            cores = max(1, int(node["Resources"]["CPU"]) // count)
            place = _Place(node["NodeID"], node["NodeManagerHostname"], cores, int(bool(with_gpu)))
            found += [place] * count
        return found

    def leave(self) -> None:
        """Leave it; once one worker has, the others follow."""
        if self._ours and self.ray.is_initialized():
            self.ray.shutdown()


def told_workers(cores: int) -> dict[str, str]:
    """Variables of the environment for workers: their cores, and what was given beside the configuration."""
    given = (VARIABLE, FILES, OWN_DATA, "PFL_DATA_DIR")
    told = {name: os.environ[name] for name in given if name in os.environ}
    return told | {CORES_VARIABLE: str(cores), COMMIT_VARIABLE: commit()}


class _Site:
    """The actor; nothing of it imports Ray."""

    def begin(
        self, config: RunConfig, execution: Execution, variables: Mapping[str, str]
    ) -> tuple[str, str, int] | UserError:
        os.environ.update(variables)
        use_share()
        try:
            return begin(config, execution)
        except UserError as error:
            return error

    def serve(self, request: bytes) -> bytes:
        return serve(request)


class RayWorker(Worker):
    """An actor on a machine of the cluster; where that is lost, on another one."""

    def __init__(self, cluster: _Cluster, config: RunConfig, execution: Execution, place: _Place) -> None:
        self._cluster, self._config, self._spot = cluster, config, place
        self._actor: Any = None
        self._execution = replace(execution.absolute(), executor="auto", trackings=())
        self.place = place.machine

    def start(self, cores: float | None = None) -> None:
        """Begin to load the run's data; `cores` are kept for it (default: all of its place)."""
        spot, variables = self._spot, told_workers(self._spot.cores)
        asked = {"num_cpus": spot.cores if cores is None else cores, "num_gpus": spot.gpus}
        actor = self._cluster.ray.remote(**asked, max_restarts=0)(_Site)
        self._actor = actor.options(label_selector={"ray.io/node-id": spot.node}).remote()
        self._ready = self._actor.begin.remote(self._config, self._execution, variables)

    def wait(self) -> None:
        """Return when it is ready."""
        try:
            told = self._cluster.ray.get(self._ready, timeout=_SECONDS_TO_BEGIN)
        except Exception as error:  # it cannot be placed, or a package is not there
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
            raise UserError(
                f"the Ray worker on {self.place} cannot begin: {reason}; its machine needs the packages that "
                "this one has, at the same versions, and cores that nobody else has taken"
            ) from error
        if isinstance(told, UserError):
            raise UserError(f"on Ray worker {self.place}: {told}")
        self.device, self.executor, self.cores = told

    def ask(self, request: bytes) -> Future[bytes]:
        assert self._actor is not None
        lost = self._cluster.ray.exceptions.RayError
        return translated(self._actor.serve.remote(request).future(), lambda error: isinstance(error, lost))

    def restart(self) -> None:
        self._end()
        there = self._cluster.places()
        if there and self._spot.node not in {place.node for place in there}:
            self._spot = there[0]
        self.place = self._spot.machine
        self.start(cores=0)  # beside another one, perhaps
        self.wait()

    def _end(self) -> None:
        if self._actor is not None and self._cluster.ray.is_initialized():
            self._cluster.ray.kill(self._actor)
        self._actor = None

    def close(self) -> None:
        self._end()
        self._cluster.leave()
