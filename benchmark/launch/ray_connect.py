"""Joining a Ray cluster, or starting one, and dividing it among cells."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmark.engine.executors.threads import available_cores
from benchmark.errors import UserError
from benchmark.launch.base import package

__all__ = ["Machine", "Shares", "connect", "divide", "import_ray"]

_ROOT = Path(__file__).resolve().parents[2]
_NOT_SENT = ["/.venv", "/.git", "/results", "/tests"]  # of the checkout, to machines that join
_STORE_BYTES = 200_000_000  # of a cluster that is started here: records are written directly
_SECONDS_TO_CONNECT = 5.0


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


def import_ray() -> Any:
    """The package.

    Raises:
        UserError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # The default of a release to come, which Ray otherwise announces at length.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    return package("ray", "ray")


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


@dataclass(frozen=True)
class Machine:
    """What Ray may use of a machine."""

    cpus: int
    gpus: int = 0


@dataclass(frozen=True)
class Shares:
    """Cells at a time, and what each of them gets (of a GPU perhaps a part)."""

    jobs: int
    cpus: int
    gpus: float


def divide(machines: Sequence[Machine], jobs: int | None, cells: int, device: str) -> Shares:
    """Divide a cluster among cells so that all of them can be placed.

    Args:
        jobs: as asked for; None or 0: one a GPU where there are GPUs (and `device` allows), else one a CPU.
        cells: how many there are; more jobs would have nothing to do.
        device: ``auto``, ``cpu`` or ``cuda``.

    Raises:
        UserError: more jobs than CPUs, or no GPU where one is asked for.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"--device {device} has no meaning on a Ray cluster; expected auto, cpu or cuda")
    with_gpu = [machine for machine in machines if machine.gpus]
    if device == "cuda" and not with_gpu:
        raise UserError(
            "--device cuda: the Ray cluster has no GPU; use --device cpu, or add a machine with one"
        )
    on_gpus = bool(with_gpu) and device != "cpu"
    used = with_gpu if on_gpus else list(machines)
    cpus, gpus = sum(machine.cpus for machine in used), sum(machine.gpus for machine in used)
    wanted = jobs or (min(gpus, cpus) if on_gpus else cpus)
    if not 1 <= wanted <= cpus:
        whose = "machines with a GPU have" if on_gpus else "Ray cluster has"
        raise UserError(
            f"--jobs {wanted}: every job needs a CPU, and the {whose} {cpus}; give --jobs {max(1, cpus)} or "
            "fewer, or add machines with `ray start --address`"
        )
    wanted = min(wanted, max(1, cells))
    on_each = math.ceil(wanted / gpus) if on_gpus else 0  # cells that share a GPU
    for share in range(max(machine.cpus for machine in used), 0, -1):
        places = [
            min(machine.cpus // share, machine.gpus * on_each) if on_gpus else machine.cpus // share
            for machine in used
        ]
        if sum(places) >= wanted:
            return Shares(wanted, share, 1 / on_each if on_gpus else 0.0)
    most = sum(min(machine.cpus, machine.gpus * on_each) for machine in used)
    raise UserError(
        f"--jobs {wanted}: the machines of the Ray cluster have room for {most}; give at most that"
    )
