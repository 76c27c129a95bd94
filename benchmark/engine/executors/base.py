"""What every executor offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from torch import Tensor

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.data import FederatedData, Part
from pfl_benchmark.engine.local import LocalCall, LocalResult
from pfl_benchmark.engine.params import row
from pfl_benchmark.engine.sgd import LocalWork, forward
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.models import Network, Params


class Executor(ABC):
    """Trains and evaluates some clients at a time.

    Args:
        strict: refuse what this executor cannot do (`unable`), instead of doing it client by client.
    """

    name: ClassVar[str]
    channels_last: ClassVar[bool] = False
    by_cores: ClassVar[bool] = True  # on another number of cores, floats are summed in another order

    def __init__(self, config: RunConfig, data: FederatedData, streams: Streams, strict: bool = True) -> None:
        self.data, self.strict = data, strict
        self._work = LocalWork(config, data, streams, self.channels_last)

    @abstractmethod
    def _map(self, task: Callable[[int], object], count: int) -> list:
        """Run ``task(0) … task(count − 1)`` and return the results in that order."""

    @classmethod
    def unable(cls, network: Network, not_stackable: str = "") -> str:
        """What this executor cannot carry out, in words; empty if it can everything.

        Args:
            not_stackable: why the method's steps cannot be computed for several clients at once, if so.
        """
        return ""

    def map(self, task: Callable[[int], Tensor], count: int) -> list[Tensor]:
        """Results of ``task(0) … task(count − 1)``, in that order, computed as this executor does."""
        return self._map(task, count)

    def layout(self, tensor: Tensor) -> Tensor:
        """`tensor` in this executor's memory format (images and kernels only)."""
        return self._work.layout(tensor)

    def train(self, call: LocalCall) -> LocalResult:
        """Carry out the local work of the call's clients."""
        return LocalResult.join(self._map(lambda i: self._work.train(call, i), len(call.clients)))

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
