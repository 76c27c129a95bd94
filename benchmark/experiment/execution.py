"""How and where runs are carried out."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.executors import EXECUTORS, choose_executor
from pfl_benchmark.engine.rounds import CHECKPOINT_SECONDS
from pfl_benchmark.errors import UserError, nearest
from pfl_benchmark.experiment.memory import usual_budget
from pfl_benchmark.models import Network
from pfl_benchmark.records.environment import available_cores
from pfl_benchmark.track.base import Tracking

_DEVICES = "auto, cpu, cuda, cuda:N or mps"
RAY = "ray"  # the executor whose workers are the machines of a Ray cluster


@dataclass(frozen=True)
class Execution:
    """How and where a run is carried out; nothing here changes what it means."""

    device: str = "auto"
    executor: str = "auto"
    data_dir: Path | None = None
    results_dir: Path = Path("results/runs")
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    side_by_side: int = 1  # runs that share the machine; on record, since it tells in the seconds
    trackings: tuple[Tracking, ...] = ()
    tf32: bool = False  # see `engine.precision`
    save_predictions: bool = False  # see `records.outputs`
    save_models: bool = False
    client_memory: int | None = None  # bytes that clients may keep in memory; None: a share of what is free

    def absolute(self) -> Execution:
        """With paths that mean the same to workers, whose current folder may be another."""
        data_dir = self.data_dir.absolute() if self.data_dir else None
        return replace(self, data_dir=data_dir, results_dir=self.results_dir.absolute())

    def pick_devices(self) -> list[torch.device]:
        """The devices to use, the server's first; UserError where one is unknown or not here."""
        names = self.device.split(",")
        if len(names) > 1 and self.executor == RAY:
            raise UserError(
                f"--device {self.device}: the cluster of --executor ray has devices of its own; drop it"
            )
        if len(names) > 1 and "auto" in names:
            raise UserError(f"--device {self.device}: expected the devices by name where there are several")
        devices = [self._device(name.strip()) for name in names]
        if len({device.type for device in devices}) > 1:
            raise UserError(
                f"--device {self.device}: expected devices of one kind, so that it makes no difference which "
                "of them has a client"
            )
        twice = [device for device in devices if device.type != "cpu" and devices.count(device) > 1]
        if twice:
            raise UserError(f"--device {self.device}: {twice[0]} is named twice; name each device once")
        if len(devices) > (cores := available_cores()):
            raise UserError(
                f"--device {self.device}: every device needs a core to itself, and there are {cores} here; "
                "name fewer devices"
            )
        return devices

    def pick_device(self) -> torch.device:
        """The first of `pick_devices`."""
        return self.pick_devices()[0]

    def _device(self, name: str) -> torch.device:
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"  # mps only where it is asked for
        try:
            device = torch.device(name)
        except RuntimeError:
            number = re.sub(r"\D", "", name)
            likely = "cpu" if name.lower() == "cpu" else f"cuda:{number}" if number else ""
            likely = likely or ("cuda" if name.lower() in ("gpu", "cuda", "nvidia") else "")
            likely = likely or ("mps" if name.lower() in ("mps", "apple", "metal", "m1", "m2", "m3") else "")
            guess = f" (did you mean '{likely}'?)" if likely else ""
            raise UserError(f"unknown device '{name}'{guess}; expected {_DEVICES}") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise UserError("--device cuda: PyTorch finds no CUDA GPU here; use --device cpu")
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise UserError(f"--device {name}: only {torch.cuda.device_count()} CUDA device(s) here")
        if device.type in ("cpu", "mps") and device.index is not None:
            what = "the CPUs are" if device.type == "cpu" else "an Apple machine's GPU is"
            raise UserError(f"--device {name}: {what} one device; use --device {device.type}")
        if device.type == "mps" and not torch.backends.mps.is_available():
            raise UserError(
                "--device mps: PyTorch finds no Apple GPU here (a Mac with Apple silicon has one); use "
                "--device cpu"
            )
        if device.type not in ("cpu", "cuda", "mps"):
            raise UserError(f"--device {name} is not supported; expected {_DEVICES}")
        return device

    def pick_client_memory(self, device: torch.device) -> float:
        """Bytes that what clients keep may take of a device's memory."""
        return usual_budget(device, self.side_by_side) if self.client_memory is None else self.client_memory

    def check_executor(self) -> None:
        """Raise UserError for an unknown executor."""
        if self.executor not in ("auto", *EXECUTORS, RAY):
            known = ", ".join(["auto", *EXECUTORS, RAY])
            raise UserError(
                f"unknown executor '{self.executor}'{nearest(self.executor, EXECUTORS)}; known: {known}"
            )

    def pick_executor(self, device: torch.device, network: Network, method: type[Algorithm]) -> str:
        """The name of the executor to use; UserError where it cannot train this network or this method."""
        self.check_executor()
        if self.executor in ("auto", RAY):
            return choose_executor(device.type, network, method.not_stackable)
        problem = EXECUTORS[self.executor].unable(network, method.not_stackable)
        if problem:
            what = f"'{method.name}'" if method.not_stackable else "this network"
            raise UserError(f"--executor {self.executor} cannot train {what}: {problem}; use --executor auto")
        return self.executor
