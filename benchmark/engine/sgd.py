"""Local SGD of one client: the single definition of what local training means.

Mini-batch SGD with momentum as in PyTorch (no Nesterov, no dampening), a fresh momentum buffer for
every phase, a fresh permutation for every epoch, the last short batch kept. With sample weights ω
(mean 1) a batch's loss is ``(1/|batch|) Σ ω_i ℓ_i``: dividing by Σω would undo the weighting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmark.engine.config import RunConfig
from benchmark.engine.data import FederatedData
from benchmark.engine.local import LocalCall, Phase
from benchmark.engine.params import row
from benchmark.engine.streams import Purpose, Streams
from benchmark.models import DropoutSource, Network, Params

__all__ = ["ClientResult", "LocalWork", "forward"]

FORWARD_BATCH = 128  # bounds the memory of passes that need no gradient


@dataclass
class ClientResult:
    """One client's share of an `Outcome`."""

    models: dict[str, Params]
    loss: Tensor
    samples: int
    steps: int
    features: tuple[Tensor, Tensor] | None


@torch.no_grad()
def forward(network: Network, params: Params, x: Tensor, stop: int | None = None) -> Tensor:
    """Evaluation-mode output of layers up to `stop` for `x` [n, ...], in bounded memory."""
    return torch.cat([network.apply(params, part, stop=stop) for part in x.split(FORWARD_BATCH)])


class LocalWork:
    """Carries out one client's part of a call.

    Args:
        channels_last: memory format of images and kernels, which is faster on CPUs.
    """

    def __init__(
        self, config: RunConfig, data: FederatedData, streams: Streams, channels_last: bool = False
    ) -> None:
        self.config, self.data, self.streams = config, data, streams
        self._format = torch.channels_last if channels_last else torch.contiguous_format

    def layout(self, tensor: Tensor) -> Tensor:
        """`tensor` in this executor's memory format (images and kernels only)."""
        return tensor.contiguous(memory_format=self._format) if tensor.dim() == 4 else tensor.contiguous()

    def train(self, call: LocalCall, position: int) -> ClientResult:
        """Train client ``call.clients[position]``; the call's tensors are left as they are."""
        client = call.clients[position]
        models = {
            slot: {name: self.layout(t.detach().clone()) for name, t in row(model.params, position).items()}
            for slot, model in call.models.items()
        }
        weights = call.sample_weights[position] if call.sample_weights is not None else None
        orders: dict[Purpose, np.random.Generator] = {}
        augment = self.streams.get("augment", call.round, client)
        noise = self._dropout(call.round, client)
        raw, y = self.data.raw(client), self.data.labels(client)
        result = ClientResult(models, torch.zeros((), device=self.data.device), 0, 0, None)
        collected: list[tuple[Tensor, Tensor]] = []
        for phase in call.phases:
            if not phase.rates or not phase.epochs:
                continue
            if phase.stream not in orders:
                orders[phase.stream] = self.streams.get(phase.stream, call.round, client)
            network = call.models[phase.model].network
            epochs = self._epochs(network, models[phase.model], phase, raw, orders[phase.stream], augment)
            self._run(network, models[phase.model], phase, epochs, y, weights, noise, result, collected)
        if collected:
            result.features = (torch.cat([z for z, _ in collected]), torch.cat([c for _, c in collected]))
        return result

    def first_layer(self, network: Network, phase: Phase) -> int:
        """Index of the first layer that must run at every step: what comes before can be run once a phase.

        That is so for frozen layers before the first trained (or collected) one, if nothing is random there.
        """
        trained = [layer.name in phase.rates for layer in network.layers]
        start = trained.index(True) if True in trained else 0
        if phase.collect is not None:
            start = min(start, network.index(phase.collect))
        random = self.config.augment or any(layer.drops for layer in network.layers[:start])
        return 0 if random else start

    def _dropout(self, round: int, client: int) -> DropoutSource:
        rng = self.streams.get("dropout", round, client)

        def mask(shape: tuple[int, ...], rate: float) -> Tensor:
            kept = torch.from_numpy(rng.random(shape, dtype=np.float32) >= rate)
            return kept.to(self.data.device, torch.float32).div_(1 - rate)

        return mask

    def _epochs(
        self,
        network: Network,
        params: Params,
        phase: Phase,
        raw: Tensor,
        order: np.random.Generator,
        augment: np.random.Generator,
    ) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Yield (input, permutation, first layer to run) of each epoch.

        Layers before the first trained one are run once per phase where nothing random lies between.
        """
        start = self.first_layer(network, phase)
        x = raw if self.config.augment else self.layout(self.data.encode(raw))
        if start > 0:
            x = forward(network, params, x, stop=start)
        for _ in range(phase.epochs):
            permutation = torch.from_numpy(order.permutation(len(raw))).to(raw.device)
            if self.config.augment:
                yield self.layout(self.data.encode(self.data.augment(raw, augment))), permutation, start
            else:
                yield x, permutation, start

    def _run(
        self,
        network: Network,
        params: Params,
        phase: Phase,
        epochs: Iterator[tuple[Tensor, Tensor, int]],
        y: Tensor,
        weights: Tensor | None,
        noise: DropoutSource,
        result: ClientResult,
        collected: list[tuple[Tensor, Tensor]],
    ) -> None:
        step = _Sgd(network, params, phase, self.config.momentum, self.config.weight_decay)
        cut = network.index(phase.collect) if phase.collect is not None else None
        for x, permutation, start in epochs:
            total = torch.zeros((), device=self.data.device)
            for batch in permutation.split(self.config.batch_size):
                hidden, targets = x[batch], y[batch]
                if cut is not None:
                    hidden = network.apply(params, hidden, start, cut, noise)
                    collected.append((hidden.detach().flatten(1), targets))
                logits = network.apply(params, hidden, start if cut is None else cut, None, noise)
                losses = F.cross_entropy(logits, targets, reduction="none")
                if weights is not None:
                    losses = losses * weights[batch]
                loss = losses.mean()
                step(loss)
                total += loss.detach() * len(batch)
                result.steps += 1
            result.samples += len(permutation)
            result.loss = total / len(permutation)
        step.release()


class _Sgd:
    """The update rule of one phase, on the tensors of one client, in place."""

    def __init__(
        self, network: Network, params: Params, phase: Phase, momentum: float, weight_decay: float
    ) -> None:
        self._momentum, self._decay, self._proximal = momentum, weight_decay, phase.proximal
        names = network.keys(phase.rates)
        self._leaves = [params[name].requires_grad_() for name in names]
        self._buffers: list[Tensor] = []
        # One entry per learning rate: positions of the tensors that have it.
        self._groups: dict[float, list[int]] = {}
        for position, name in enumerate(names):
            self._groups.setdefault(phase.rates[name.split(".")[0]], []).append(position)
        self._decayed = [i for i, name in enumerate(names) if ".bias" not in name]
        masks = phase.masks or {}
        self._masked = [(i, masks[name]) for i, name in enumerate(names) if name in masks]
        anchor = phase.proximal.anchor if phase.proximal else {}
        self._anchor = [anchor[name] for name in names] if phase.proximal else []

    def __call__(self, loss: Tensor) -> None:
        grads = list(torch.autograd.grad(loss, self._leaves))
        with torch.no_grad():
            if self._decay:
                for i in self._decayed:
                    grads[i] = grads[i].add(self._leaves[i], alpha=self._decay)
            for i, mask in self._masked:
                grads[i] = grads[i] * mask
            pulls = list(torch._foreach_sub(self._leaves, self._anchor)) if self._proximal else []
            for i, mask in self._masked if self._proximal else ():
                pulls[i] = pulls[i] * mask
            if self._buffers:
                torch._foreach_mul_(self._buffers, self._momentum)
                torch._foreach_add_(self._buffers, grads)
            else:
                self._buffers = grads
            for rate, members in self._groups.items():
                leaves = [self._leaves[i] for i in members]
                torch._foreach_add_(leaves, [self._buffers[i] for i in members], alpha=-rate)
                if self._proximal:
                    pull = [pulls[i] for i in members]
                    torch._foreach_add_(leaves, pull, alpha=-rate * self._proximal.strength)

    def release(self) -> None:
        """End of the phase: the tensors become plain values again."""
        for leaf in self._leaves:
            leaf.requires_grad_(False)
