"""Local training of one client: the single definition of what it means.

Mini-batches of a fresh permutation (or a fresh draw by chances) for every epoch, the last short batch kept; a
phase by batches may end within an epoch. Steps are those of the run's optimiser (`engine.update`; SGD with
momentum unless asked otherwise), whose state is fresh for every phase. With sample weights ω (mean 1) a
batch's loss is ``(1/|batch|) Σ ω_i ℓ_i``: dividing by Σω would undo the weighting. A phase may have another
objective, or another rule for its steps (`engine.step`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.data import FederatedData, draw_crops
from pfl_benchmark.engine.local import LocalCall, LocalResult, Phase
from pfl_benchmark.engine.params import along, expand, gradients, row
from pfl_benchmark.engine.step import Draw, Noise, Step
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.engine.update import Recipe, Update
from pfl_benchmark.models import DropoutSource, Network, Params

FORWARD_BATCH = 128  # bounds the memory of passes that need no gradient


@torch.no_grad()
def forward(network: Network, params: Params, x: Tensor, stop: int | None = None) -> Tensor:
    """Evaluation-mode output of layers up to `stop` for `x` [n, ...], in bounded memory."""
    return torch.cat([network.apply(params, part, stop=stop) for part in x.split(FORWARD_BATCH)])


def epoch_order(rng: np.random.Generator, size: int, chances: Tensor | None = None) -> np.ndarray:
    """Positions of an epoch's samples [size], in the order in which they are used.

    Args:
        chances: draw with replacement, in proportion to these [size]; None: a permutation.
    """
    if chances is None:
        return rng.permutation(size)
    shares = chances.to(torch.float64).numpy()
    return rng.choice(size, size, p=shares / shares.sum())


def epoch_parts(phase: Phase, size: int, batch_size: int) -> Iterator[int]:
    """Samples that each epoch of a phase takes of a client's `size`: all, but maybe of the last epoch."""
    left = phase.samples(size, batch_size)
    while left > 0:
        yield min(left, size)
        left -= size


def step_stream(draw: Draw) -> str:
    """The stream of random numbers of steps: one for each kind and name, that no other purpose has."""
    return f"step {draw.kind} {draw.name}"


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

    @cached_property
    def recipe(self) -> Recipe:
        """How steps are taken."""
        return Recipe.of(self.config)

    def layout(self, tensor: Tensor) -> Tensor:
        """`tensor` in this executor's memory format (images and kernels only)."""
        if tensor.dim() != 4:
            return tensor.contiguous()
        tensor = tensor.contiguous(memory_format=self._format)
        if self._format == torch.channels_last and tensor.shape[1] == 1:
            # One channel is in both formats. PyTorch takes it, and what comes out of the convolution, for
            # contiguous unless its stride says otherwise.
            tensor = tensor.as_strided(tensor.shape, (tensor.stride(0), 1, *tensor.stride()[2:]))
        return tensor

    def train(self, call: LocalCall, position: int) -> LocalResult:
        """Train client ``call.clients[position]``; the call's tensors are left as they are.

        Returns:
            The outcome of this client alone, stacked [1, ...].
        """
        client = call.clients[position]
        models = {
            slot: {name: self.layout(t.detach().clone()) for name, t in row(model.params, position).items()}
            for slot, model in call.models.items()
        }
        given = {name: row(tensors, position) for name, tensors in call.constants.items()}
        chances = call.chances[position] if call.chances is not None else None
        orders: dict[str, np.random.Generator] = {}
        augment = self.streams.get("augment", call.round, client)
        noise = self._dropout(call.round, client)
        raw, y = self.data.raw(client), self.data.labels(client)
        result = LocalResult(call.round, [client], {}, torch.zeros(1, device=self.data.device), 0, 0)
        collected: list[tuple[Tensor, Tensor]] = []
        for phase in call.phases:
            if phase.idle:
                continue
            phase = phase if call.factor == 1 else phase.at(call.factor)
            if phase.stream not in orders:
                orders[phase.stream] = self.streams.get(phase.stream, call.round, client)
            network = call.models[phase.model].network
            order = partial(epoch_order, orders[phase.stream], len(raw), chances)
            params, given_weights = models[phase.model], call.weights(phase.model)
            weights = given_weights[position] if given_weights is not None else None
            epochs = self._epochs(network, params, phase, raw, order, augment)
            for draw in phase.draws:
                if (stream := step_stream(draw)) not in orders:
                    orders[stream] = self.streams.get(stream, call.round, client)
            draws = [(draw, orders[step_stream(draw)]) for draw in phase.draws]
            self._run(network, params, phase, epochs, y, weights, given, noise, draws, result, collected)
        if collected:
            result.features = [(torch.cat([z for z, _ in collected]), torch.cat([c for _, c in collected]))]
        result.models = {
            slot: {name: tensor.contiguous().unsqueeze(0) for name, tensor in params.items()}
            for slot, params in models.items()
        }
        return result

    def _dropout(self, round: int, client: int) -> DropoutSource:
        rng = self.streams.get("dropout", round, client)

        def mask(shape: tuple[int, ...], rate: float) -> Tensor:
            kept = torch.from_numpy(rng.random(shape, dtype=np.float32) >= rate)
            return kept.to(self.data.device, torch.float32).div_(1 - rate)

        return mask

    def _drawn(self, draw: Draw, rng: np.random.Generator, count: int) -> Tensor:
        return torch.from_numpy(draw.rows(rng, count)).to(self.data.device).unsqueeze(0)

    def _epochs(
        self,
        network: Network,
        params: Params,
        phase: Phase,
        raw: Tensor,
        order: Callable[[], np.ndarray],
        augment: np.random.Generator,
    ) -> Iterator[tuple[Tensor, Tensor, int]]:
        """Yield (input, order of the samples, first layer to run) of each epoch, as far as it goes.

        Layers before the first trained one are run once per phase where nothing random lies between.
        """
        start = first_layer(network, phase, self.config.augment)
        x = raw if self.config.augment else self.layout(self.data.encode(raw))
        if start > 0:
            x = forward(network, params, x, stop=start)
        for taken in epoch_parts(phase, len(raw), self.config.batch_size):
            positions = torch.from_numpy(order()).to(raw.device)[:taken]
            if self.config.augment:
                padding = self.config.crop_padding
                images = self.data.augment(raw, draw_crops(len(raw), augment, padding), padding)
                yield self.layout(self.data.encode(images)), positions, start
            else:
                yield x, positions, start

    def _run(
        self,
        network: Network,
        params: Params,
        phase: Phase,
        epochs: Iterator[tuple[Tensor, Tensor, int]],
        y: Tensor,
        weights: Tensor | None,
        given: Mapping[str, Params],
        noise: DropoutSource,
        draws: Sequence[tuple[Draw, np.random.Generator]],
        result: LocalResult,
        collected: list[tuple[Tensor, Tensor]],
    ) -> None:
        # For rules and objectives a stack of one, in the same memory.
        stack = params if phase.plain else {n: tensor.detach().unsqueeze(0) for n, tensor in params.items()}
        update = self.recipe.update(network, stack, phase, 0 if phase.plain else 1)
        smoothing = self.recipe.label_smoothing
        cut = network.index(phase.collect) if phase.collect is not None else None
        constants = {name: expand(tensors, 1) for name, tensors in {**phase.constants, **given}.items()}
        leaves = [params[n].requires_grad_() for n in update.names] if quick(network, phase, update) else []
        for x, positions, start in epochs:
            total = torch.zeros(1, device=self.data.device)
            for batch in positions.split(self.config.batch_size * phase.batches):
                hidden, targets = x[batch], y[batch]
                own = weights[batch] if weights is not None else None
                if phase.plain:
                    if cut is not None:
                        hidden = network.apply(params, hidden, start, cut, noise)
                        collected.append((hidden.detach().flatten(1), targets))
                    first = start if cut is None else cut
                    loss = _loss(network, params, hidden, targets, own, first, noise, smoothing)
                    update(gradients(loss, update.leaves))
                else:
                    ones = torch.ones_like(targets, dtype=hidden.dtype) if own is None else own
                    step = Step(
                        network, stack, constants, update.rates,
                        hidden.unsqueeze(0), targets.unsqueeze(0), (ones / len(batch)).unsqueeze(0),
                        torch.full((1,), len(batch), device=self.data.device),
                        Noise(noise, len(batch), 0), update.descend, phase.objective, cut, single=True,
                        smoothing=smoothing,
                        drawn={(d.kind, d.name): self._drawn(d, rng, len(batch)) for d, rng in draws},
                    )  # fmt: skip
                    if leaves:
                        inputs = (network, params, hidden, targets, own, start, noise, smoothing)
                        step = replace(step, quick=partial(_gradients, update.names, leaves, inputs))
                    loss = take(step, phase, update)
                    if cut is not None:
                        collected.append((step.features.detach().squeeze(0).flatten(1), targets))
                total += loss.detach() * len(batch)
                result.steps += 1
            result.samples += len(positions) * phase.passes
            result.loss = total / len(positions)
        update.release()
        for leaf in leaves:
            leaf.requires_grad_(False)


def _loss(
    network: Network,
    params: Params,
    x: Tensor,
    targets: Tensor,
    weights: Tensor | None,
    start: int,
    noise: DropoutSource,
    smoothing: float,
) -> Tensor:
    """The weighted mean cross-entropy of one client's batch, a scalar."""
    logits = network.apply(params, x, start, None, noise)
    losses = F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
    return (losses if weights is None else losses * weights).mean()


def _gradients(names: list[str], leaves: list[Tensor], inputs: tuple) -> tuple[Params, Tensor]:
    """Gradients and value of `_loss` as `Step.gradient` returns them."""
    with torch.enable_grad():
        loss = _loss(*inputs)
        found = gradients(loss, leaves)
    return {n: gradient.unsqueeze(0) for n, gradient in zip(names, found, strict=True)}, loss.detach().view(1)


def quick(network: Network, phase: Phase, update: Update) -> bool:
    """Whether `Step.gradient` without arguments is that of plain training, which executors have at hand."""
    own = network.shapes()
    random = any(layer.drops for layer in network.layers)  # masks are common to all passes of a step
    plain = phase.rule is not None and phase.objective is None and phase.collect is None
    return plain and not random and all(name in own for name in update.names)


def take(step: Step, phase: Phase, update: Update, present: Tensor | None = None) -> Tensor:
    """One step by the phase's own rule or objective, in place; returns each client's loss [m].

    Args:
        present: as of `Update`.
    """
    if phase.rule is None:
        losses = step.loss()
        update(gradients(losses.sum(), update.leaves), present)
        return losses.detach()
    with torch.no_grad():
        if step.collect is not None:
            step.features  # noqa: B018  # of the parameters before the step, from here on
        before = [leaf.clone() for leaf in update.leaves] if present is not None else []
        losses = phase.rule(step)
        if present is not None:
            for leaf, old in zip(update.leaves, before, strict=True):
                leaf.copy_(torch.where(along(present, leaf) > 0, leaf, old))
    return losses


def first_layer(network: Network, phase: Phase, augment: bool) -> int:
    """Index of the first layer that must run at every step: what comes before can be run once a phase.

    That is so for frozen layers before the first trained (or collected) one, if nothing there is random or
    has buffers. Objectives and rules get the input of the network: they may run other models on it.
    """
    if not phase.plain:
        return 0
    trained = [layer.name in phase.rates and not layer.still for layer in network.layers]
    start = trained.index(True) if True in trained else 0
    if phase.collect is not None:
        start = min(start, network.index(phase.collect))
    before = network.layers[:start]
    random = augment or any(layer.drops or layer.buffers for layer in before)
    return 0 if random or all(layer.done for layer in before) else start
