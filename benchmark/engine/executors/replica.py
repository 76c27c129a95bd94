"""A worker's side of a run on several devices: data and executor of the run, on one of them."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Sequence

import torch

from pfl_benchmark.engine.data import Part
from pfl_benchmark.engine.executors.base import Executor
from pfl_benchmark.engine.executors.wire import pack, placed, unpack
from pfl_benchmark.engine.local import LocalCall, LocalResult
from pfl_benchmark.models import Network, Params


class Replica:
    """Trains and evaluates some clients of a run, on a device of its own."""

    def __init__(self, executor: Executor, network: Network) -> None:
        self._executor, self._network = executor, network

    def serve(self, request: bytes) -> bytes:
        """Answer a request of `DividedExecutor`: what it asks for, or the error that came of it."""
        try:
            name, moment, arguments = unpack(request, self._network)
            self._executor.data.follow(moment)
            return pack(getattr(self, f"_{name}")(*arguments), self._network)
        except Exception as error:
            return pack(_sendable(error), self._network)

    @property
    def _device(self) -> torch.device:
        return self._executor.data.device

    def _train(self, call: LocalCall) -> LocalResult:
        return self._executor.train(placed(call, self._device))

    def _forward(
        self, network: Network, params: Params, clients: Sequence[int], part: Part, stop: int | None
    ) -> list[torch.Tensor]:
        own = {name: tensor.to(self._device) for name, tensor in params.items()}
        return self._executor.forward(network, own, clients, part, stop)


def _sendable(error: Exception) -> Exception:
    """An error that can be pickled, with where it was raised."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever its class asks for
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"on a worker:\n{traceback.format_exc()}")
    return error
