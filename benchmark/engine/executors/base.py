"""What every executor offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from benchmark.engine.config import RunConfig
from benchmark.engine.data import FederatedData, Part
from benchmark.engine.local import LocalCall, Outcome
from benchmark.engine.params import row
from benchmark.engine.sgd import ClientResult, LocalWork, forward
from benchmark.engine.streams import Streams
from benchmark.models import Network, Params

__all__ = ["Executor"]


class Executor(ABC):
    """Trains and evaluates some clients at a time."""

    name: ClassVar[str]
    channels_last: ClassVar[bool] = False

    def __init__(self, config: RunConfig, data: FederatedData, streams: Streams) -> None:
        self.data = data
        self._work = LocalWork(config, data, streams, self.channels_last)

    @abstractmethod
    def _map(self, task: Callable[[int], object], count: int) -> list:
        """Run ``task(0) … task(count − 1)`` and return the results in that order."""

    def train(self, call: LocalCall) -> Outcome:
        """Carry out the local work of the call's clients."""
        results: list[ClientResult] = self._map(lambda i: self._work.train(call, i), len(call.clients))
        models = {
            slot: {name: torch.stack([r.models[slot][name] for r in results]) for name in model.params}
            for slot, model in call.models.items()
        }
        return Outcome(
            round=call.round,
            clients=call.clients,
            models=models,
            loss=torch.stack([r.loss for r in results]),
            samples=sum(r.samples for r in results),
            steps=sum(r.steps for r in results),
            features=[r.features for r in results if r.features is not None],
        )

    def forward(
        self,
        network: Network,
        params: Params,
        clients: Sequence[int],
        part: Part,
        stop: int | None = None,
    ) -> list[Tensor]:
        """Evaluation-mode outputs of stacked models [m, ...] on their clients' data.

        Args:
            part: the clients' training or test data, never augmented.
            stop: index of the first layer that is not run (default: the logits are returned).

        Returns:
            Per client a tensor [n, ...].
        """

        def one(i: int) -> Tensor:
            own = {name: self._work.layout(tensor) for name, tensor in row(params, i).items()}
            return forward(network, own, self._work.layout(self.data.inputs(clients[i], part)), stop)

        return self._map(one, len(clients))

    def close(self) -> None:
        """Give back what the executor holds (by default nothing)."""
        return
