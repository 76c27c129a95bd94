"""A whole cohort as one batched computation, parameters stacked on a leading client axis.

Clients are trained in lockstep: step s takes the s-th batch of every client's epoch. Clients with fewer
samples have shorter or no batches there; their places are filled and masked, and a client without a batch
keeps its parameters and momentum, so the result is the `loop` executor's.
"""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pfl_benchmark.engine.data import Part, draw_crops
from pfl_benchmark.engine.executors.base import Executor
from pfl_benchmark.engine.executors.memory import clients_that_fit, free_bytes, ran_out, step_bytes
from pfl_benchmark.engine.executors.program import InputBuffer, Inputs, Program, Signature, signature
from pfl_benchmark.engine.executors.replay import Recorder
from pfl_benchmark.engine.executors.tables import draw_batches, draw_tables
from pfl_benchmark.engine.executors.threads import CorePool
from pfl_benchmark.engine.local import LocalCall, LocalResult
from pfl_benchmark.engine.sgd import first_layer, step_stream
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import Network, Params

FORWARD_SAMPLES = 2048  # of all clients together, in passes that need no gradient
PROGRAMS = 12  # kept for reuse: two of a method's round and closing round, some stages, an adaptation

T = TypeVar("T")


class StackedExecutor(Executor):
    """Trains the clients of a call together; evaluation is batched in the same way.

    On a CUDA device a stack is as large as its memory allows. On CPUs the cohort is divided into as many
    stacks as there are cores, which run side by side.
    """

    name = "stacked"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pool = CorePool() if self.data.device.type == "cpu" else None
        self._slots = self._pool.size if self._pool else 1
        self._recorders = [Recorder(self.data.device) for _ in range(self._slots)]
        self._programs: list[dict[Signature, Program]] = [{} for _ in range(self._slots)]
        self._fits: dict[Network, int] = {}  # clients of a network in a stack, by the memory free at first
        self._limit = sys.maxsize  # clients in a stack, after memory has run out
        self._samples = FORWARD_SAMPLES  # fewer after memory has run out
        self._noted = False

    @classmethod
    def unable(cls, network: Network, not_stackable: str = "") -> str:
        if not_stackable:
            return not_stackable
        reasons: dict[str, list[str]] = {}
        for layer in network.layers:
            if layer.not_stackable:
                reasons.setdefault(layer.not_stackable, []).append(layer.name)
        found = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
        return f"{'; '.join(found)}: clients cannot be computed together" if found else ""

    def _refused(self, network: Network) -> bool:
        """True if a network has to be trained client by client.

        Raises:
            UserError: that would not be what was asked for.
        """
        problem = self.unable(network)
        if problem and self.strict:
            raise UserError(f"--executor stacked cannot train this network: {problem}; use --executor auto")
        return bool(problem)

    def close(self) -> None:
        self._forget()
        if self._pool:
            self._pool.close()

    def _forget(self) -> None:
        """Drop all recorded steps and their buffers."""
        for programs, recorder in zip(self._programs, self._recorders, strict=True):
            programs.clear()
            recorder.forget()

    # -- dividing a cohort into stacks ----------------------------------------------------------

    def _map(self, task: Callable[[int], Any], count: int) -> list:
        return self._pool.map(task, count) if self._pool else [task(i) for i in range(count)]

    def _in_stacks(self, work: Callable[[int, slice], T], count: int, most: int) -> list[T]:
        """Results of ``work(slot, clients)`` for contiguous parts of `count` clients, in that order.

        A part whose memory runs out has changed nothing but buffers: it is tried again in smaller parts, and
        so is everything later.

        Args:
            most: clients that fit into a part, as far as is known.

        Raises:
            UserError: the memory does not suffice for one client.
        """
        results: list[T] = []
        done = 0
        while done < count:
            left = count - done
            parts = max(min(left, self._slots), -(-left // min(most, self._limit)))
            bounds = [done + left * i // parts for i in range(parts + 1)]
            wave = [slice(a, b) for a, b in itertools.pairwise(bounds)][: self._slots]
            try:
                results += self._map(partial(_nth, work, wave), len(wave))
                done = wave[-1].stop
                continue
            except RuntimeError as error:
                if not ran_out(error):
                    raise
                width = max(part.stop - part.start for part in wave)
            self._shrink(width)  # here nothing of the failed attempt is referred to any more
        return results

    def _shrink(self, width: int) -> None:
        """Memory ran out for `width` clients at once: forget all buffers, go on with half as many."""
        self._forget()
        if self.data.device.type == "cuda":
            gc.collect()  # a step that is replayed without a graph refers to itself
            torch.cuda.empty_cache()
        if width == 1:
            raise UserError(
                f"out of memory: a single client does not fit on {self.data.device}; give a smaller "
                "--batch-size, free memory there, or use --executor loop or --device cpu"
            )
        self._limit, self._samples = width // 2, max(1, self._samples // 2)
        if not self._noted:
            self._noted = True
            print(f"stacked: out of memory with {width} clients at once; goes on with at most {self._limit}",
                  file=sys.stderr)  # fmt: skip

    def _fitting(self, network: Network) -> int:
        """Clients of a network that the device's memory is planned for; on CPUs all."""
        if self.data.device.type != "cuda":
            return sys.maxsize
        if network not in self._fits:
            batch = self.data.encode(self.data.stored()[0][: self._work.config.batch_size])
            each = step_bytes(network, batch, self._work.recipe.copies)
            self._fits[network] = clients_that_fit(free_bytes(self.data.device), each)
        return self._fits[network]

    # -- training -------------------------------------------------------------------------------

    def train(self, call: LocalCall) -> LocalResult:
        if any(self._refused(model.network) for model in call.models.values()):
            return super().train(call)
        networks = {call.models[phase.model].network for phase in call.phases}
        most = min((self._fitting(network) for network in networks), default=sys.maxsize)
        parts = self._in_stacks(
            lambda slot, part: self._train(slot, call.part(part)), len(call.clients), most
        )
        return LocalResult.join(parts)

    def _train(self, slot: int, call: LocalCall) -> LocalResult:
        """Train one stack."""
        config, streams, clients = self._work.config, self._work.streams, call.clients
        models = {name: dict(model.params) for name, model in call.models.items()}
        sizes = [self.data.train_sizes[client] for client in clients]
        own = _pad([self.data.rows(client) for client in clients])
        orders: dict[str, list[np.random.Generator]] = {}
        augments = [streams.get("augment", call.round, client) for client in clients]
        dropouts = [streams.get("dropout", call.round, client) for client in clients]
        outcome = LocalResult(
            call.round, clients, {}, torch.zeros(len(clients), device=self.data.device), 0, 0
        )
        collected: list[list[tuple[Tensor, Tensor]]] = []
        for phase in call.phases:
            if phase.idle:
                continue
            # Rules read the rates as numbers; other steps get a factor on the device, and stay recorded.
            factor = 1.0 if phase.rule is not None else call.factor
            phase = phase if call.factor == factor else phase.at(call.factor)
            if phase.stream not in orders:
                orders[phase.stream] = [streams.get(phase.stream, call.round, client) for client in clients]
            rngs = orders[phase.stream]
            places = config.batch_size * phase.batches
            if phase.batches == 1:
                places = min(places, max(self.data.train_sizes))
            if isinstance(phase.epochs, int):
                tables = draw_tables(sizes, phase.epochs, places, rngs, call.chances)
            else:
                tables = draw_batches(sizes, phase, config.batch_size, places, rngs, call.chances)
            network, params = call.models[phase.model].network, models[phase.model]
            start = first_layer(network, phase, config.augment)
            hidden = self._outputs(network, params, own, "train", start) if start else None
            weights = call.weights(phase.model)
            padded = _pad(weights) if weights is not None else None
            inputs = Inputs(params, phase, tables, own, padded, call.constants, factor)
            program = self._program(slot, network, inputs, start, places, hidden)
            for draw in phase.draws:
                if (stream := step_stream(draw)) not in orders:
                    orders[stream] = [streams.get(stream, call.round, client) for client in clients]
            program.load(inputs, dropouts, [orders[step_stream(draw)] for draw in phase.draws])
            if hidden is not None:
                program.refill(hidden)
            ends = [step for step, _ in tables.begins[1:]] + [len(tables.counts)]
            for (step, whose), end in zip(tables.begins, ends, strict=True):
                if config.augment:
                    chosen = range(len(clients)) if whose is None else whose
                    own_crops = [augments[k] for k in chosen]
                    program.refill(self._augmented([clients[k] for k in chosen], own_crops), whose)
                program.run(end - step)
            params.update(program.trained())
            outcome.loss = program.loss()
            if phase.collect is not None:
                collected.append(program.collected(tables))
            outcome.samples += sum(phase.samples(n, config.batch_size) for n in sizes) * phase.passes
            outcome.steps += int((tables.counts > 0).sum())
        outcome.features = [
            (torch.cat([z for z, _ in parts]), torch.cat([y for _, y in parts]))
            for parts in zip(*collected, strict=True)
        ]
        outcome.models = {
            name: {key: tensor.detach().clone() for key, tensor in params.items()}
            for name, params in models.items()
        }
        return outcome

    def _program(
        self, slot: int, network: Network, inputs: Inputs, start: int, places: int, hidden: Tensor | None
    ) -> Program:
        """The recorded step for a phase, made now or in an earlier round."""
        config = self._work.config
        buffer = None
        if hidden is not None:
            buffer = InputBuffer(tuple(hidden.shape[2:]), hidden.dtype, encoded=True)
        elif config.augment:
            stored = self.data.stored()[0]
            buffer = InputBuffer(tuple(stored.shape[1:]), stored.dtype, encoded=False)
        key = signature(network, inputs, start, places, max(self.data.train_sizes), buffer)
        programs = self._programs[slot]
        if key not in programs:
            if (
                len(programs) >= PROGRAMS
            ):  # all, not the oldest: graphs that are left must not miss its memory
                programs.clear()
                self._recorders[slot].forget()
            programs[key] = Program(key, self.data, self._work.recipe, self._recorders[slot])
        return programs[key]

    def _augmented(self, clients: Sequence[int], rngs: Sequence[np.random.Generator]) -> Tensor:
        """One epoch's augmented samples; every client draws from its own stream, as elsewhere."""
        padding, sizes = self._work.config.crop_padding, [self.data.train_sizes[c] for c in clients]
        crops = [draw_crops(size, rng, padding) for size, rng in zip(sizes, rngs, strict=True)]
        raw = self.data.stored()[0][torch.cat([self.data.rows(client) for client in clients])]
        return _pad(self.data.augment(raw, np.concatenate(crops), padding).split(sizes))

    # -- evaluation -----------------------------------------------------------------------------

    def forward(
        self,
        network: Network,
        params: Params,
        clients: Sequence[int],
        part: Part,
        stop: int | None = None,
    ) -> list[Tensor]:
        if self._refused(network):
            return super().forward(network, params, clients, part, stop)
        sizes = self.data.train_sizes if part == "train" else self.data.test_sizes

        def outputs(slot: int, chosen: slice) -> list[Tensor]:
            models = {name: tensor[chosen] for name, tensor in params.items()}
            own = _pad([self.data.rows(client, part) for client in clients[chosen]])
            found = self._outputs(network, models, own, part, stop)
            return [found[k, : sizes[client]] for k, client in enumerate(clients[chosen])]

        parts = self._in_stacks(outputs, len(clients), self._fitting(network))
        return [output for outputs in parts for output in outputs]

    @torch.no_grad()
    def _outputs(self, network: Network, params: Params, own: Tensor, part: Part, stop: int | None) -> Tensor:
        """Evaluation-mode output [m, n, ...] for the stored samples `own` [m, n], in bounded memory."""
        stored = self.data.stored(part)[0]
        width = max(1, self._samples // len(own))

        def output(rows: Tensor) -> Tensor:
            x = self.data.encode(stored[rows.flatten()]).unflatten(0, tuple(rows.shape))
            return network.apply_stacked(params, x, 0, stop)

        return torch.cat([output(rows) for rows in own.split(width, 1)], dim=1)


def _nth(work: Callable[[int, slice], T], parts: Sequence[slice], i: int) -> T:
    return work(i, parts[i])


def _pad(parts: Sequence[Tensor]) -> Tensor:
    """Stack clients' data [n_k, ...] to [m, max n_k, ...], filled up with zeros."""
    if len({len(part) for part in parts}) == 1:
        return torch.stack(list(parts))
    return torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
