"""One phase of a whole stack of clients as a step on tensors that never move.

Parameters, momentum, batch tables, masks and losses live in buffers that are allocated once for a signature:
the phase's kind and the shapes. A phase is carried out by copying its start into the buffers, replaying the
step, and copying the result out; later phases of the same signature use the same buffers and the same
recorded step.

Samples are gathered batch by batch from the one copy of the data on the device and encoded then, three small
kernels a step. Encoding a cohort in advance would save them, but costs a float copy of its data in every
round (four times the bytes of images, hundreds of times those of text) and an address that changes with
every cohort, which a captured step cannot follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.engine.data import FederatedData
from pfl_benchmark.engine.executors.replay import Recorder
from pfl_benchmark.engine.executors.tables import Tables, draw_dropout, draw_numbers, dropout_shapes
from pfl_benchmark.engine.local import Phase
from pfl_benchmark.engine.params import expand, gradients
from pfl_benchmark.engine.sgd import quick, take
from pfl_benchmark.engine.step import Draw, Noise, Objective, Rule, Step
from pfl_benchmark.engine.update import Recipe
from pfl_benchmark.models import DropoutSource, Network, Params

# Group, name, shape of one client's, and type of some tensors.
Shapes = tuple[tuple[str, str, tuple[int, ...], torch.dtype], ...]


@dataclass(frozen=True)
class InputBuffer:
    """Input that is not read from the stored data: one place for each sample of each client.

    Attributes:
        shape: of a sample.
        encoded: False if samples still have to be encoded, as augmented ones have.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    encoded: bool


@dataclass(frozen=True)
class Signature:
    """What a recorded step depends on besides the contents of its buffers."""

    network: Network
    rates: tuple[tuple[str, float], ...]
    objective: Objective | None
    rule: Rule | None
    beside: Shapes  # tensors of the model that are not the network's
    common: Shapes  # constants of the phase, one for all clients
    own: Shapes  # constants of the call, one for each client
    masked: tuple[str, ...]
    draws: tuple[Draw, ...]
    collect: str | None
    start: int  # first layer that is run
    everyone: bool  # no client ever sits out a step
    scaled: bool  # a factor of the rates comes with every phase
    clients: int
    batch: int
    steps: int  # room in the tables
    most: int  # samples of the largest client
    buffer: InputBuffer | None  # None: samples come from the stored data


def _shapes(groups: Mapping[str, Params], stacked: bool) -> Shapes:
    return tuple(
        (group, name, tuple(tensor.shape[1:] if stacked else tensor.shape), tensor.dtype)
        for group, tensors in groups.items()
        for name, tensor in tensors.items()
    )


def signature(
    network: Network,
    inputs: Inputs,
    start: int,
    batch: int,
    most: int,
    buffer: InputBuffer | None,
) -> Signature:
    """The signature of a phase; tables have room for a client of `most` samples, whoever takes part.

    Args:
        batch: places of a step.
    """
    phase, tables, shapes = inputs.phase, inputs.tables, network.shapes()
    beside = {name: tensor for name, tensor in inputs.params.items() if name not in shapes}
    return Signature(
        network=network,
        rates=tuple(phase.rates.items()),
        objective=phase.objective,
        rule=phase.rule,
        beside=_shapes({"": beside}, stacked=True),
        common=() if phase.plain else _shapes(phase.constants, stacked=False),
        own=() if phase.plain else _shapes(inputs.constants, stacked=True),
        masked=tuple(phase.masks or ()),
        draws=() if phase.plain else phase.draws,
        collect=phase.collect,
        start=start,
        everyone=tables.everyone,
        clients=tables.counts.shape[1],
        batch=batch,
        scaled=inputs.factor != 1,
        steps=phase.steps(most, batch // phase.batches),
        most=most,
        buffer=buffer,
    )


@dataclass(frozen=True)
class Inputs:
    """What a phase starts from.

    Attributes:
        params: stacked parameters [m, ...].
        own: where each client's samples are among the stored ones [m, n], filled up to the longest.
        weights: sample weights [m, n], or None for ones.
        factor: what the rates are multiplied by.
        constants: each client's own tensors for objective and rule, by name, stacked [m, ...].
    """

    params: Params
    phase: Phase
    tables: Tables
    own: Tensor
    weights: Tensor | None
    constants: Mapping[str, Params]
    factor: float = 1.0


class Program:
    """The step of a signature, its buffers and its replay."""

    def __init__(self, key: Signature, data: FederatedData, recipe: Recipe, recorder: Recorder) -> None:
        self.key, self._data, self._device = key, data, data.device
        network, m = key.network, key.clients
        self._params = {
            name: self._zeros(m, *shape) for name, shape in network.shapes(network.names[key.start :]).items()
        }
        shapes = network.shapes()
        self._params |= {name: self._zeros(m, *shape, dtype=dtype) for _, name, shape, dtype in key.beside}
        self._masks = {name: self._zeros(*shapes[name]) for name in key.masked}
        self._common: dict[str, Params] = {}
        for group, name, shape, dtype in key.common:
            self._common.setdefault(group, {})[name] = self._zeros(*shape, dtype=dtype)
        self._own: dict[str, Params] = {}
        for group, name, shape, dtype in key.own:
            self._own.setdefault(group, {})[name] = self._zeros(m, *shape, dtype=dtype)
        self._constants = {**{group: expand(given, m) for group, given in self._common.items()}, **self._own}
        self._phase = Phase(
            dict(key.rates), 1, masks=self._masks, collect=key.collect, objective=key.objective, rule=key.rule
        )
        self._update, self._smoothing = (
            recipe.update(network, self._params, self._phase, m),
            recipe.label_smoothing,
        )
        if key.scaled:
            self._update.factor = self._zeros()
        self._quick = quick(network, self._phase, self._update)
        self._cut = network.index(key.collect) if key.collect is not None else None

        stored, labels = data.stored()
        self._source = stored
        if key.buffer is not None:
            self._source = self._zeros(m * key.most, *key.buffer.shape, dtype=key.buffer.dtype)
        self._first = key.most * torch.arange(m, device=self._device)[:, None]  # of each client in a buffer
        self._rows = self._zeros(key.steps, m * key.batch, dtype=torch.int64)
        self._targets = self._zeros(key.steps, m * key.batch, dtype=labels.dtype)
        self._sample_weights = self._zeros(key.steps, m, key.batch)
        self._present = self._zeros(key.steps, m)
        self._counts = self._zeros(key.steps, m, dtype=torch.int64)
        self._share = self._zeros(key.steps, m)
        self._counter = self._zeros(1, dtype=torch.int64)
        self._loss = self._zeros(m)
        sample = self._encoded(self._source[:1])[0]
        batch = sample.new_empty(m, key.batch, *sample.shape)
        self._drops = dropout_shapes(network, self._phase, key.start, self._params, batch)
        self._kept = [self._zeros(key.steps, *shape, dtype=torch.bool) for shape, _ in self._drops]
        self._drawn = [self._zeros(key.steps, m, key.batch, *draw.shape) for draw in key.draws]
        self._features = self._zeros(0)
        if self._cut is not None:
            with torch.no_grad():
                width = network.apply_stacked(self._params, batch.zero_(), key.start, self._cut)
            self._features = self._zeros(key.steps, *width.flatten(2).shape)
        self._replay = recorder.record(self._step, self._reset)

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self._device)

    # -- the step -------------------------------------------------------------------------------

    def _row(self, table: Tensor) -> Tensor:
        """The row of a table that belongs to this step, chosen on the device."""
        return table.index_select(0, self._counter)[0]

    def _encoded(self, x: Tensor) -> Tensor:
        return x if self.key.buffer is not None and self.key.buffer.encoded else self._data.encode(x)

    def _noise(self) -> DropoutSource:
        tables: Iterator[Tensor] = iter(self._kept)
        return lambda shape, rate: self._row(next(tables)).float().div_(1 - rate)

    def _step(self) -> None:
        """Forward, backward and update of all clients; nothing here looks at a value on the host."""
        x = self._encoded(self._source.index_select(0, self._row(self._rows)))
        x = x.unflatten(0, (self.key.clients, self.key.batch))
        present = None if self.key.everyone else self._row(self._present)
        losses = (self._plain_step if self._phase.plain else self._own_step)(x, present)
        with torch.no_grad():
            share = self._row(self._share)
            # Steps before the last epoch must not count even where their loss is infinite.
            self._loss.add_(torch.where(share > 0, losses * share, torch.zeros_like(losses)))
            self._counter.add_(1)

    def _plain_step(self, x: Tensor, present: Tensor | None) -> Tensor:
        """SGD on cross-entropy; returns each client's loss [m]."""
        params, noise, start = self._params, self._noise(), self.key.start
        if self._cut is not None:
            x, start = self.key.network.apply_stacked(params, x, start, self._cut, noise), self._cut
            self._features.index_copy_(0, self._counter, x.detach().flatten(2).unsqueeze(0))
        losses = self._losses(x, start, noise)
        # Each client's loss depends on its own slice only: the gradient of the sum is all their gradients.
        self._update(gradients(losses.sum(), self._update.leaves), present)
        return losses

    def _losses(self, x: Tensor, start: int, noise: DropoutSource) -> Tensor:
        """Each client's weighted mean cross-entropy [m] for the output `x` of the layers before `start`."""
        key = self.key
        logits = key.network.apply_stacked(self._params, x, start, None, noise)
        targets, smoothing = self._row(self._targets), self._smoothing
        losses = F.cross_entropy(logits.flatten(0, 1), targets, reduction="none", label_smoothing=smoothing)
        return (losses.view(key.clients, key.batch) * self._row(self._sample_weights)).sum(1)

    def _gradients(self, x: Tensor) -> tuple[Params, Tensor]:
        """Gradients and values of `_losses` as `Step.gradient` returns them."""
        with torch.enable_grad():
            losses = self._losses(x, self.key.start, self._noise())
            found = gradients(losses.sum(), self._update.leaves)
        return dict(zip(self._update.names, found, strict=True)), losses.detach()

    def _own_step(self, x: Tensor, present: Tensor | None) -> Tensor:
        """A step of the phase's own rule or objective; returns each client's loss [m]."""
        key = self.key
        step = Step(
            key.network, self._params, self._constants, self._update.rates,
            x, self._row(self._targets).view(key.clients, key.batch), self._row(self._sample_weights),
            self._row(self._counts), Noise(self._noise(), key.batch, 1),
            partial(self._update.descend, present=present), key.objective, self._cut,
            quick=partial(self._gradients, x) if self._quick else None, smoothing=self._smoothing,
            drawn={(d.kind, d.name): self._row(t) for d, t in zip(key.draws, self._drawn, strict=True)},
        )  # fmt: skip
        losses = take(step, self._phase, self._update, present)
        if self._cut is not None:
            features = step.features.detach().flatten(2)
            self._features.index_copy_(0, self._counter, features.unsqueeze(0))
        return losses

    def _reset(self) -> None:
        self._counter.zero_()

    # -- a phase --------------------------------------------------------------------------------

    @torch.no_grad()
    def load(
        self,
        inputs: Inputs,
        dropouts: Sequence[np.random.Generator],
        draws: Sequence[Sequence[np.random.Generator]] = (),
    ) -> None:
        """Take over the start of a phase.

        Args:
            dropouts: the clients' streams for masks.
            draws: those of each `Phase.draws`.
        """
        phase, tables, key = inputs.phase, inputs.tables, self.key
        for name, tensor in self._params.items():
            tensor.copy_(inputs.params[name])
        for name, mask in self._masks.items():
            mask.copy_((phase.masks or {})[name])
        for buffers, given in ((self._common, phase.constants), (self._own, inputs.constants)):
            for group, tensors in buffers.items():
                for name, tensor in tensors.items():
                    tensor.copy_(given[group][name])
        torch._foreach_zero_([*self._update.state, self._loss])
        if self._update.factor is not None:
            self._update.factor.fill_(inputs.factor)
        self._counter.zero_()
        places = self._upload(tables.rows)
        stack = torch.arange(key.clients, device=self._device)[:, None]
        stored = inputs.own[stack, places].flatten(1)
        scale = self._upload(tables.scale)
        if inputs.weights is not None:
            scale = scale * inputs.weights[stack, places]
        self._fill(self._rows, stored if key.buffer is None else (places + self._first).flatten(1))
        self._fill(self._targets, self._data.stored()[1][stored])
        self._fill(self._sample_weights, scale)
        self._fill(self._present, self._upload(tables.counts > 0))
        self._fill(self._counts, self._upload(tables.counts))
        self._fill(self._share, self._upload(tables.share))
        for table, drawn in zip(self._kept, draw_dropout(self._drops, tables.counts, dropouts), strict=True):
            self._fill(table, self._upload(drawn))
        for table, draw, rngs in zip(self._drawn, key.draws, draws, strict=False):
            self._fill(table, self._upload(draw_numbers(draw, key.batch, tables.counts, rngs)))

    def _upload(self, table: np.ndarray) -> Tensor:
        return torch.from_numpy(table).to(self._device)

    @staticmethod
    def _fill(table: Tensor, rows: Tensor) -> None:
        table[: len(rows)].copy_(rows)

    def refill(self, x: Tensor, whose: list[int] | None = None) -> None:
        """Put samples [m, n, ...] of everyone, or of some clients, into the buffer."""
        buffer = self._source.unflatten(0, (self.key.clients, self.key.most))
        if whose is None:
            buffer[:, : x.shape[1]].copy_(x)
        else:
            for position, own in zip(whose, x, strict=True):
                buffer[position, : x.shape[1]].copy_(own)

    def run(self, steps: int) -> None:
        """Carry out the next `steps` steps."""
        for _ in range(steps):
            self._replay()

    def trained(self) -> Params:
        """Copies of the parameters that the phase trains, stacked [m, ...]."""
        return {name: self._params[name].detach().clone() for name in self._update.names}

    def loss(self) -> Tensor:
        """Mean loss of each client over the phase's last epoch [m]."""
        return self._loss.clone()

    def collected(self, tables: Tables) -> list[tuple[Tensor, Tensor]]:
        """Per client the collected features [N, d] and labels [N], in the order of the steps."""
        targets = self._targets.unflatten(1, (self.key.clients, self.key.batch))
        found = []
        for k in range(self.key.clients):
            steps, places = (self._upload(index) for index in tables.taken(k))
            found.append((self._features[steps, k, places], targets[steps, k, places]))
        return found
