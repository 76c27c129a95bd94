"""Several devices in one run: clients of a round are divided among workers, one for each device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import groupby

from torch import Tensor

from pfl_benchmark.console.terminal import say
from pfl_benchmark.engine.data import Part
from pfl_benchmark.engine.executors.base import Executor
from pfl_benchmark.engine.executors.wire import pack, returned, unpack
from pfl_benchmark.engine.local import LocalCall, LocalResult
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import Network, Params

ATTEMPTS = 3  # at a part of a round, where workers are lost


class Lost(Exception):  # what has happened to a worker
    """A worker has ended before it answered."""


class Worker(ABC):
    """Where a `Replica` of the run answers, in another process.

    Attributes:
        place: for people: ``cpu``, ``cuda:1``, a machine's name.
        device, executor, cores: what it computes with, as on record.
    """

    place: str
    device: str
    executor: str
    cores: int

    @abstractmethod
    def ask(self, request: bytes) -> Future[bytes]:
        """Have `Replica.serve` answer, after earlier requests; `Lost` from the future if it cannot."""

    @abstractmethod
    def restart(self) -> None:
        """Begin anew after a loss."""

    @abstractmethod
    def close(self) -> None:
        """End, whatever it is at."""


class DividedExecutor(Executor):
    """Has workers train and evaluate; their results are joined in the order of the clients.

    Which worker has a client makes no difference on devices of one kind, and so the sums of the server are
    those of one device. A part of a round whose worker is lost is done again.

    Args:
        own: does what methods compute themselves (`map`), beside the server's state.
        network: of the run.
    """

    name = "divided"

    def __init__(self, own: Executor, network: Network, workers: Sequence[Worker]) -> None:
        self.data, self.strict, self.workers = own.data, own.strict, tuple(workers)
        self._own, self._network = own, network

    def _map(self, task: Callable[[int], object], count: int) -> list:
        return self._own._map(task, count)

    def layout(self, tensor: Tensor) -> Tensor:
        return self._own.layout(tensor)

    def train(self, call: LocalCall) -> LocalResult:
        parts = self._parts(call.clients, self.data.train_sizes)
        results = self._ask("train", [(call.part(part),) for part in parts])
        return LocalResult.join([returned(result, self.data.device) for result in results])

    def forward(
        self,
        network: Network,
        params: Params,
        clients: Sequence[int],
        part: Part,
        stop: int | None = None,
    ) -> list[Tensor]:
        sizes = self.data.train_sizes if part == "train" else self.data.test_sizes
        asked = [
            (network, {name: tensor[own] for name, tensor in params.items()}, [*clients[own]], part, stop)
            for own in self._parts(clients, sizes)
        ]
        answers = self._ask("forward", asked)
        return [output.to(self.data.device) for answer in answers for output in answer]

    def _parts(self, clients: Sequence[int], sizes: Sequence[int]) -> list[slice]:
        """Neighbouring clients for each worker, with about equal samples; few have fewer parts."""
        total, before, whose = sum(sizes[client] for client in clients), 0, []
        for client in clients:
            middle = before + sizes[client] / 2
            whose.append(int(middle * len(self.workers) / total))
            before += sizes[client]
        places = (list(group) for _, group in groupby(range(len(whose)), whose.__getitem__))
        return [slice(place[0], place[-1] + 1) for place in places]

    def _ask(self, name: str, asked: Sequence[tuple]) -> list:
        """Answers of the first workers, each to a request of its own."""
        requests = [pack((name, self.data.moment, one), self._network) for one in asked]
        workers = self.workers[: len(requests)]
        futures = [worker.ask(request) for worker, request in zip(workers, requests, strict=True)]
        return [self._answer(*one) for one in zip(workers, futures, requests, strict=True)]

    def _answer(self, worker: Worker, future: Future[bytes], request: bytes) -> object:
        for attempt in range(ATTEMPTS):
            try:
                answer = unpack(future.result(), self._network)
            except Lost as lost:
                reason = lost
                if attempt + 1 < ATTEMPTS:
                    say(f"the worker on {worker.place} is lost ({lost}); its part of the round is done again")
                    worker.restart()
                    future = worker.ask(request)
                continue
            if isinstance(answer, Exception):
                raise answer
            return answer
        raise UserError(
            f"the worker on {worker.place} was lost {ATTEMPTS} times in one round ({reason}); most often its "
            "memory is full: use fewer devices or a smaller network, and call this again to go on from the "
            "last checkpoint"
        )

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self._own.close()
