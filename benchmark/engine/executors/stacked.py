"""A whole cohort as one batched computation, parameters stacked on a leading client axis.

Clients are trained in lockstep: step s takes the s-th batch of every client's epoch. Clients with fewer
samples have shorter or no batches there; their places are filled and masked, and a client without a batch
keeps its parameters and momentum, so the result is the `loop` executor's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmark.engine.data import Part
from benchmark.engine.executors.base import Executor
from benchmark.engine.executors.threads import CorePool
from benchmark.engine.local import LocalCall, LocalModel, Outcome, Phase
from benchmark.engine.streams import Purpose
from benchmark.models import DropoutSource, Network, Params

__all__ = ["StackedExecutor"]

FORWARD_SAMPLES = 2048  # of all clients together, in passes that need no gradient


@dataclass
class _Plan:
    """The batches of one phase, for all steps and clients: index tables of static shape.

    Attributes:
        rows: positions in the clients' (padded) data [steps, m, B].
        scale: 1 / batch size where a place holds a sample, 0 where it is filled up [steps, m, B].
        active: 1 for clients that have a batch in the step [steps, m].
        share: batch size / samples of the client [steps, m].
        last: first step of the phase's last epoch.
        counts: batch sizes by step and client, on the host.
    """

    rows: Tensor
    scale: Tensor
    active: Tensor
    share: Tensor
    last: int
    counts: np.ndarray


class StackedExecutor(Executor):
    """Trains the clients of a call together; evaluation is batched in the same way.

    On CPUs the cohort is divided into as many stacks as there are cores, which run side by side.
    """

    name = "stacked"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._pool = CorePool() if self.data.device.type == "cpu" else None

    def _map(self, task: Callable[[int], object], count: int) -> list:
        return self._pool.map(task, count) if self._pool else [task(i) for i in range(count)]

    def _stacks(self, count: int) -> list[slice]:
        """Contiguous parts of a cohort, one a stack."""
        stacks = min(count, self._pool.size if self._pool else 1)
        bounds = [count * i // stacks for i in range(stacks + 1)]
        return [slice(a, b) for a, b in itertools.pairwise(bounds)]

    def close(self) -> None:
        if self._pool:
            self._pool.close()

    # -- training -------------------------------------------------------------------------------

    def train(self, call: LocalCall) -> Outcome:
        stacks = self._stacks(len(call.clients))
        outcomes = self._map(lambda i: self._train(_part_of(call, stacks[i])), len(stacks))
        models = {
            slot: {name: torch.cat([o.models[slot][name] for o in outcomes]) for name in model.params}
            for slot, model in call.models.items()
        }
        return Outcome(
            round=call.round,
            clients=call.clients,
            models=models,
            loss=torch.cat([o.loss for o in outcomes]),
            samples=sum(o.samples for o in outcomes),
            steps=sum(o.steps for o in outcomes),
            features=[own for o in outcomes for own in o.features],
        )

    def _train(self, call: LocalCall) -> Outcome:
        """Train one stack."""
        config, streams = self._work.config, self._work.streams
        device, clients = self.data.device, call.clients
        models = {
            slot: {name: tensor.detach().clone() for name, tensor in model.params.items()}
            for slot, model in call.models.items()
        }
        sizes = [self.data.train_sizes[client] for client in clients]
        raw = _pad([self.data.raw(client) for client in clients])
        labels = _pad([self.data.labels(client) for client in clients])
        weights = _pad(call.sample_weights) if call.sample_weights is not None else None
        orders: dict[Purpose, list[np.random.Generator]] = {}
        augments = [streams.get("augment", call.round, client) for client in clients]
        dropouts = [streams.get("dropout", call.round, client) for client in clients]
        loss = torch.zeros(len(clients), device=device)
        samples = steps = 0
        collected: list[list[tuple[Tensor, Tensor]]] = [[] for _ in clients]
        plain = self.data.encode(raw) if not config.augment else None
        for phase in call.phases:
            if not phase.rates or not phase.epochs:
                continue
            if phase.stream not in orders:
                orders[phase.stream] = [streams.get(phase.stream, call.round, client) for client in clients]
            network, params = call.models[phase.model].network, models[phase.model]
            plan = _plan(sizes, phase.epochs, config.batch_size, orders[phase.stream], device)
            start = self._work.first_layer(network, phase)
            everyone = bool((plan.counts > 0).all())
            step = _Step(network, params, phase, config.momentum, config.weight_decay, everyone)
            per_epoch = len(plan.rows) // phase.epochs
            x = plain
            if x is not None and start > 0:
                x = _forward(network, params, x, 0, start)
            for index in range(len(plan.rows)):
                if config.augment and index % per_epoch == 0:
                    x = self._augmented(raw, sizes, augments)
                assert x is not None
                if index == plan.last:
                    loss = torch.zeros_like(loss)
                noise = _dropout(dropouts, plan.counts[index], device)
                hidden, targets = _take(x, plan.rows[index]), _take(labels, plan.rows[index])
                scale = plan.scale[index]
                if weights is not None:
                    scale = scale * _take(weights, plan.rows[index])
                features, losses = step(hidden, targets, scale, plan.active[index], start, noise)
                if features is not None:
                    for k, count in enumerate(plan.counts[index]):
                        if count:
                            collected[k].append((features[k, :count], targets[k, :count]))
                loss += losses * plan.share[index]
            step.release()
            samples += sum(sizes) * phase.epochs
            steps += int((plan.counts > 0).sum())
        own = [(torch.cat([z for z, _ in c]), torch.cat([y for _, y in c])) for c in collected if c]
        return Outcome(call.round, clients, models, loss, samples, steps, own)

    def _augmented(self, raw: Tensor, sizes: Sequence[int], rngs: list[np.random.Generator]) -> Tensor:
        """One epoch's augmented input; every client draws from its own stream, as in the other executors."""
        own = zip(raw, sizes, rngs, strict=True)
        return self.data.encode(_pad([self.data.augment(images[:size], rng) for images, size, rng in own]))

    # -- evaluation -----------------------------------------------------------------------------

    def forward(
        self,
        network: Network,
        params: Params,
        clients: Sequence[int],
        part: Part,
        stop: int | None = None,
    ) -> list[Tensor]:
        sizes = self.data.train_sizes if part == "train" else self.data.test_sizes
        stacks = self._stacks(len(clients))

        def one(i: int) -> list[Tensor]:
            own = clients[stacks[i]]
            models = {name: tensor[stacks[i]] for name, tensor in params.items()}
            x = self.data.encode(_pad([self.data.raw(client, part) for client in own]))
            outputs = _forward(network, models, x, 0, stop)
            return [outputs[k, : sizes[client]] for k, client in enumerate(own)]

        return [output for outputs in self._map(one, len(stacks)) for output in outputs]


class _Step:
    """One lockstep step of all clients: forward, backward, update in place."""

    def __init__(
        self,
        network: Network,
        params: Params,
        phase: Phase,
        momentum: float,
        weight_decay: float,
        everyone: bool,
    ) -> None:
        self._network, self._params, self._phase = network, params, phase
        self._momentum, self._decay, self._everyone = momentum, weight_decay, everyone
        self._cut = network.index(phase.collect) if phase.collect is not None else None
        self._names = network.keys(phase.rates)
        self._leaves = [params[name].requires_grad_() for name in self._names]
        self._buffers = [torch.zeros_like(leaf) for leaf in self._leaves]
        self._rates = [phase.rates[name.split(".")[0]] for name in self._names]

    def __call__(
        self, x: Tensor, targets: Tensor, scale: Tensor, active: Tensor, start: int, noise: DropoutSource
    ) -> tuple[Tensor | None, Tensor]:
        """Returns the collected features [m, B, d] (if asked for) and the clients' batch losses [m]."""
        network, params, features = self._network, self._params, None
        if self._cut is not None:
            x = network.apply_stacked(params, x, start, self._cut, noise)
            features, start = x.detach().flatten(2), self._cut
        logits = network.apply_stacked(params, x, start, None, noise)
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
        losses = (losses * scale).sum(1)
        # Each client's loss depends on its own slice only: the gradient of the sum is all their gradients.
        grads = torch.autograd.grad(losses.sum(), self._leaves)
        with torch.no_grad():
            self._update(grads, active)
        return features, losses.detach()

    def _update(self, grads: Sequence[Tensor], active: Tensor) -> None:
        proximal, masks = self._phase.proximal, self._phase.masks or {}
        for name, leaf, buffer, grad, rate in zip(
            self._names, self._leaves, self._buffers, grads, self._rates, strict=True
        ):
            if self._decay and ".bias" not in name:
                grad = grad.add(leaf, alpha=self._decay)
            if name in masks:
                grad = grad * masks[name]
            pull = (leaf - proximal.anchor[name]) * proximal.strength if proximal else None
            if pull is not None and name in masks:
                pull = pull * masks[name]
            if self._everyone:
                buffer.mul_(self._momentum).add_(grad)
                leaf.add_(buffer, alpha=-rate)
                if pull is not None:
                    leaf.add_(pull, alpha=-rate)
            else:
                present = active.view(-1, *[1] * (leaf.dim() - 1))
                buffer.copy_(torch.where(present > 0, buffer * self._momentum + grad, buffer))
                change = buffer if pull is None else buffer + pull
                leaf.sub_(change * present, alpha=rate)

    def release(self) -> None:
        """End of the phase: the tensors become plain values again."""
        for leaf in self._leaves:
            leaf.requires_grad_(False)


def _part_of(call: LocalCall, part: slice) -> LocalCall:
    """The call for some of its clients."""
    models = {
        slot: LocalModel(model.network, {name: tensor[part] for name, tensor in model.params.items()})
        for slot, model in call.models.items()
    }
    weights = call.sample_weights[part] if call.sample_weights is not None else None
    return LocalCall(call.round, call.clients[part], models, call.phases, weights)


def _plan(
    sizes: Sequence[int], epochs: int, batch: int, rngs: list[np.random.Generator], device: torch.device
) -> _Plan:
    """Draw the permutations of a phase and lay its batches out."""
    per_epoch = -(-max(sizes) // batch)
    shape = (epochs, len(sizes), per_epoch * batch)
    rows, filled = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    for k, (size, rng) in enumerate(zip(sizes, rngs, strict=True)):
        filled[:, k, :size] = True
        for epoch in range(epochs):
            rows[epoch, k, :size] = rng.permutation(size)

    def by_step(table: np.ndarray) -> np.ndarray:
        split = table.reshape(epochs, len(sizes), per_epoch, batch).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(split).reshape(epochs * per_epoch, len(sizes), batch)

    taken = by_step(filled)
    counts = taken.sum(axis=2)
    scale = (taken / np.maximum(counts, 1)[:, :, None]).astype(np.float32)
    active = (counts > 0).astype(np.float32)

    share = (counts / np.asarray(sizes)).astype(np.float32)

    def upload(table: np.ndarray) -> Tensor:
        return torch.from_numpy(table).to(device)

    last = (epochs - 1) * per_epoch
    return _Plan(upload(by_step(rows)), upload(scale), upload(active), upload(share), last, counts)


def _pad(parts: Sequence[Tensor]) -> Tensor:
    """Stack clients' data [n_k, ...] to [m, max n_k, ...], filled up with zeros."""
    if len({len(part) for part in parts}) == 1:
        return torch.stack(list(parts))
    return torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)


def _take(table: Tensor, rows: Tensor) -> Tensor:
    """Rows [m, B] of every client's part of `table` [m, n, ...]."""
    return table[torch.arange(len(rows), device=rows.device)[:, None], rows]


@torch.no_grad()
def _forward(network: Network, params: Params, x: Tensor, start: int, stop: int | None) -> Tensor:
    """Evaluation-mode output for `x` [m, n, ...], in bounded memory."""
    width = max(1, FORWARD_SAMPLES // len(x))
    return torch.cat([network.apply_stacked(params, part, start, stop) for part in x.split(width, 1)], dim=1)


def _dropout(rngs: list[np.random.Generator], counts: np.ndarray, device: torch.device) -> DropoutSource:
    """Masks of a step: every client draws as many rows as its batch has, from its own stream."""

    def mask(shape: tuple[int, ...], rate: float) -> Tensor:
        kept = np.zeros(shape, dtype=np.float32)
        for k, (rng, count) in enumerate(zip(rngs, counts, strict=True)):
            if count:
                kept[k, :count] = rng.random((count, *shape[2:]), dtype=np.float32) >= rate
        return torch.from_numpy(kept).to(device).div_(1 - rate)

    return mask
