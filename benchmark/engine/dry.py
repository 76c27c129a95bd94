"""What a participation costs, found by going through one of each kind of round without training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.engine.data import Part
from pfl_benchmark.engine.executors import Executor
from pfl_benchmark.engine.hooks import Hooks
from pfl_benchmark.engine.local import LocalCall, LocalResult, Phase
from pfl_benchmark.engine.params import nbytes, row
from pfl_benchmark.engine.sgd import forward
from pfl_benchmark.models import Network, Params


@dataclass(frozen=True)
class Cost:
    """What one participation in a round of some kind costs.

    Attributes:
        down, up: bytes received and sent.
        first: bytes received besides in the first participation of the stage, or after the stage by those
            that have not taken part in it.
        closing: bytes that every client receives after a round that closes a stage, else 0.
        epochs: passes over the client's data, those charged to the meter included.
        by_batches: phases that take batches in place of epochs, whose samples `epochs` leaves out.
        metered: under --local-steps, samples charged to the meter before training, by the client's size;
            `epochs` leaves them out.
    """

    down: int
    up: int
    first: int
    closing: int
    epochs: float
    by_batches: tuple[Phase, ...] = ()
    metered: Mapping[int, int] = field(default_factory=dict)

    def samples(self, sizes: Sequence[int], batch_size: int) -> float:
        """Samples of a participation of clients of these sizes."""
        more = sum(p.passes * p.samples(size, batch_size) for p in self.by_batches for size in sizes)
        return self.epochs * sum(sizes) + more + sum(self.metered.get(size, 0) for size in sizes)

    def passes(self, size: int, batch_size: int) -> float:
        """All passes over the data of a client of `size` samples."""
        beside = self.by_batches or self.metered
        return self.samples([size], batch_size) / size if beside else self.epochs


_Kind = tuple[int, bool, bool, bool]


class Costs:
    """Costs of all rounds of a method, for any number of rounds.

    Rounds are of the same kind if they agree in their stage and in whether they are its first one, close it,
    and end the run; what a participation costs must not depend on anything else.
    """

    def __init__(self) -> None:
        self._found: dict[_Kind, Cost] = {}
        self._evaluation: float | None = None

    def of(self, algorithm: Algorithm) -> Iterator[tuple[int, Cost]]:
        """The rounds of a run, from 1, and their costs."""
        kinds = list(_kinds(algorithm))
        if not self._found.keys() >= {*kinds} or self._evaluation is None:
            self._participate(algorithm, kinds)
        return ((number, self._found[kind]) for number, kind in enumerate(kinds, start=1))

    def evaluation(self, algorithm: Algorithm) -> float:
        """Epochs that the final evaluation takes for each client, those charged to the meter included."""
        if self._evaluation is None:
            self._participate(algorithm, list(_kinds(algorithm)))
        assert self._evaluation is not None
        return self._evaluation

    def _participate(self, algorithm: Algorithm, kinds: Sequence[_Kind]) -> None:
        """Go through the first round of each kind with one client, in the order of the rounds."""
        task = algorithm.task
        dry = type(algorithm)(replace(task, executor=_Untrained(task.executor)), algorithm.hyper)
        hooks, (client, size) = Hooks(dry), max(enumerate(task.data.train_sizes), key=lambda pair: pair[1])
        rounds = {kind: number for number, kind in reversed([*enumerate(kinds, start=1)])}
        for kind, number in sorted(rounds.items(), key=lambda item: item[1]):
            dry.start_round(number)
            message = hooks.message([client], number)
            call, metered = hooks.begin([client], message, number), {}
            if task.config.local_steps and (begun := dry.meter.collect()[0]):
                metered = {size: begun, **self._metered(dry, hooks, number, size)}
            upload = hooks.upload(dry.task.executor.train(call))
            closing = hooks.closing([client]).nbytes(1) if dry.kind(number).closing else 0
            phases, by_batches = _divided(call.phases)
            epochs = phases + dry.meter.collect()[0] / size
            down, first = message.nbytes(1), nbytes(message.first)
            up = nbytes(upload)
            self._found[kind] = Cost(down, up, first, closing, epochs, by_batches, metered)
            dry.finish_round(number)
        dry.meter.collect()
        adaptation, _ = _divided(dry.adaptation())
        dry.scores(dry.members([client]), [client], "test")
        self._evaluation = adaptation + dry.meter.collect()[0] / size

    def _metered(self, dry: Algorithm, hooks: Hooks, number: int, known: int) -> dict[int, int]:
        """What the meter is charged before training, by the sizes of clients other than the known one."""
        found, sizes = {}, dry.task.data.train_sizes[: dry.task.data.clients]
        for size in {*sizes} - {known}:
            client = sizes.index(size)
            hooks.begin([client], hooks.message([client], number), number)
            found[size] = dry.meter.collect()[0]
        return found


def _divided(phases: Sequence[Phase]) -> tuple[int, tuple[Phase, ...]]:
    """Passes of the phases by epochs, and the phases by batches."""
    trained = [phase for phase in phases if phase.rates]
    epochs = sum(phase.epochs * phase.passes for phase in trained if isinstance(phase.epochs, int))
    return epochs, tuple(phase for phase in trained if not isinstance(phase.epochs, int))


def _kinds(algorithm: Algorithm) -> Iterator[_Kind]:
    stage = 0
    for number in range(1, algorithm.task.rounds + 1):
        kind = algorithm.kind(number)
        yield kind.stage, kind.stage != stage, kind.closing, number == algorithm.task.rounds
        stage = kind.stage


class _Untrained(Executor):
    """Trains nothing: models come back as they were sent."""

    name = "untrained"

    def __init__(self, real: Executor) -> None:
        self._real = real
        self._outputs: dict[tuple[Network, int | None], Tensor] = {}

    def _map(self, task: object, count: int) -> list:
        raise NotImplementedError

    def train(self, call: LocalCall) -> LocalResult:
        data = self._real.data
        models = {slot: dict(model.params) for slot, model in call.models.items()}
        outcome = LocalResult(call.round, call.clients, models, torch.zeros(len(call.clients)), 0, 0)
        for phase in call.phases:
            if phase.collect is not None:
                model = call.models[phase.model]
                stop = model.network.index(phase.collect)
                inputs = self.forward(model.network, model.params, call.clients, "train", stop)
                outcome.features = [
                    (z.flatten(1), data.labels(k)) for z, k in zip(inputs, call.clients, strict=True)
                ]
        return outcome

    def forward(
        self, network: Network, params: Params, clients: Sequence[int], part: Part, stop: int | None = None
    ) -> list[Tensor]:
        """One output of a network in place of all: costs depend on their number, not on their values."""
        data, key = self._real.data, (network, stop)
        sizes = data.train_sizes if part == "train" else data.test_sizes
        if key not in self._outputs:
            sample = data.encode(data.raw(clients[0], part)[:1])
            self._outputs[key] = forward(network, row(params, 0), sample, stop)
        output = self._outputs[key]
        return [output.expand(sizes[client], *output.shape[1:]) for client in clients]
