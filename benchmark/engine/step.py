"""One step of local training as a method sees it: what objectives and rules are given.

A step concerns m clients at once, everything stacked on a leading client axis; m is 1 where an executor
trains client by client. It may be recorded and replayed (a CUDA graph), so an objective or a rule takes no
decision by values of tensors, and gets what changes from round to round as constants of the phase or the
call, never from attributes of the method. It is a function of a module or a frozen dataclass: equal ones
share a recorded step.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pfl_benchmark.engine.params import gradients, select, squared_distance
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import DropoutSource, Network, Params


@dataclass(frozen=True)
class Draw:
    """Random numbers that a step asks for: `shape` for each sample of the batch."""

    name: str
    kind: Literal["uniform", "normal"]
    shape: tuple[int, ...]

    def rows(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """The numbers of `count` samples [count, ...], float32."""
        draw = rng.random if self.kind == "uniform" else rng.standard_normal
        return draw((count, *self.shape), dtype=np.float32)


class Noise:
    """The dropout masks of one step: drawn once, whatever number of passes the step makes.

    Args:
        draw: returns the next mask of a shape and rate, for the whole batch.
        batch: places of the whole batch.
        axis: the axis of masks that counts these places.
    """

    def __init__(self, draw: DropoutSource, batch: int, axis: int) -> None:
        self._draw, self._batch, self._axis = draw, batch, axis
        self._drawn: dict[str, list[Tensor]] = {}

    def of(self, layer: str, places: slice | None) -> DropoutSource:
        """The masks of one pass through a layer, of some places of the batch (None: of all)."""
        drawn, number, axis = self._drawn.setdefault(layer, []), itertools.count(), self._axis
        chosen = (slice(None),) * axis + (places or slice(None),)

        def mask(shape: tuple[int, ...], rate: float) -> Tensor:
            nth = next(number)
            if nth == len(drawn):
                drawn.append(self._draw((*shape[:axis], self._batch, *shape[axis + 1 :]), rate))
            return drawn[nth][chosen]

        return mask


@dataclass(frozen=True, eq=False)
class Step:
    """One step of m clients, on the device of the run.

    Attributes:
        params: the model that is trained, and what its `StackedModel` has beside the network's own tensors
            [m, ...]. Those named in `rates` require gradients. Only a rule may change them, in place.
        constants: what phase and call gave along, by name, stacked [m, ...]; not to be changed.
        rates: learning rates by tensor name, of the tensors that the phase trains.
        x: network input of the batch [m, B, ...].
        y: labels [m, B].
        sample_weights: weight of each place in a client's mean: (sample weight) / (batch size) where it holds
            a sample, else 0 [m, B].
        count: samples in each client's batch [m]; 0 for a client that sits out the step.
        descend: ``descend(gradients)`` takes the engine's own step (clipping, decay, masks, the run's
            optimiser, learning rate) on all tensors in `rates`, in place. For rules.
        objective: the phase's, None for cross-entropy.
        collect: index of the phase's layer to collect the inputs of, if any.
        smoothing: of labels, in `cross_entropy`.
        single: computed by the layers' `apply`, not by `apply_stacked` (m is 1).
    """

    network: Network
    params: Params
    constants: Mapping[str, Params]
    rates: Mapping[str, float]
    x: Tensor
    y: Tensor
    sample_weights: Tensor
    count: Tensor
    noise: Noise = field(repr=False)
    descend: Callable[[Params], None]
    objective: Callable[[Step], Tensor] | None = None
    collect: int | None = None
    single: bool = False
    smoothing: float = 0.0
    places: slice | None = None  # of the whole batch, None for all
    drawn: Mapping[tuple[str, str], Tensor] = field(default_factory=dict, repr=False)  # by kind and name
    quick: Callable[[], tuple[Params, Tensor]] | None = None  # `gradient` without arguments, if there is one

    def apply(
        self,
        params: Mapping[str, Tensor] | None = None,
        x: Tensor | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> Tensor:
        """Training-mode output [m, B, ...] of layers ``start`` to ``stop`` (exclusive; default: to the end).

        Args:
            params: other parameters [m, ...] than the model's; their buffers are left as they are.
            x: another input [m, B, ...] than the batch. All passes of a step have the same dropout masks.
        """
        x = self.x if x is None else x
        if params is None:
            params = self.params
        elif fixed := self.network.buffers & params.keys():
            params = {**params, **{name: params[name].clone() for name in fixed}}
        layers = self.network.layers[start:stop]
        if not self.single:
            for layer in layers:
                x = layer.apply_stacked(params, x, self.noise.of(layer.name, self.places))
            return x
        own, x = {name: tensor.squeeze(0) for name, tensor in params.items()}, x.squeeze(0)
        for layer in layers:
            x = layer.apply(own, x, self.noise.of(layer.name, self.places))
        return x.unsqueeze(0)

    @cached_property
    def features(self) -> Tensor:
        """Inputs [m, B, ...] of the layer that the phase collects."""
        assert self.collect is not None, "the phase names no layer in `collect`"
        return self.apply(stop=self.collect)

    def logits(self) -> Tensor:
        """The model's logits [m, B, C]."""
        return self.apply() if self.collect is None else self.apply(x=self.features, start=self.collect)

    def uniform(self, name: str) -> Tensor:
        """Uniform random numbers from [0, 1) for each sample [m, B, ...], as ``Phase.uniform`` declares them.

        They are those of (seed, name, round, client) and the step, whatever executor carries it out.
        """
        return self._drawn("uniform", name)

    def normal(self, name: str) -> Tensor:
        """Standard normal random numbers for each sample [m, B, ...], as ``Phase.normal`` declares them."""
        return self._drawn("normal", name)

    def _drawn(self, kind: str, name: str) -> Tensor:
        if (kind, name) not in self.drawn:
            raise UserError(
                f"a step asks for {kind} numbers '{name}', which its phase does not declare; give "
                f"Phase(..., {kind}={{'{name}': shape of one sample's}})"
            )
        found = self.drawn[kind, name]
        return found if self.places is None else found[:, self.places]

    def mean(self, values: Tensor) -> Tensor:
        """Each client's mean [m] of values of its samples [m, B], with the sample weights."""
        return (values * self.sample_weights).sum(1)

    def cross_entropy(self, logits: Tensor | None = None) -> Tensor:
        """Each client's mean cross-entropy [m], of the model's logits or of others [m, B, C]."""
        logits = self.logits() if logits is None else logits
        y, smoothing = self.y.flatten(), self.smoothing
        losses = F.cross_entropy(logits.flatten(0, 1), y, reduction="none", label_smoothing=smoothing)
        return self.mean(losses.view_as(self.y))

    def squared_distance(self, others: Mapping[str, Tensor]) -> Tensor:
        """Each client's squared Euclidean distance [m] between the model's tensors and `others` [m, ...].

        Buffers (`Layer.buffers`: running statistics), which have no gradient, do not count.
        """
        fixed = self.network.buffers
        return squared_distance(self.params, select(others, [name for name in others if name not in fixed]))

    def loss(self) -> Tensor:
        """Each client's objective [m]: the phase's own, else cross-entropy."""
        return self.cross_entropy() if self.objective is None else self.objective(self)

    def gradient(
        self, at: Mapping[str, Tensor] | None = None, objective: Objective | None = None
    ) -> tuple[Params, Tensor]:
        """Gradients [m, ...] and values [m] of each client's objective, both detached.

        Args:
            at: the tensors to differentiate by, which stand for those of the model of the same name; by
                default what the phase trains. A tensor that the objective does not use has gradient 0.
                Buffers among them (`Layer.buffers`) have none; the pass changes them in place.
            objective: another one than the phase's.
        """
        if at is None and objective is None and self.quick is not None:
            return self.quick()
        at = {name: self.params[name] for name in self.rates} if at is None else at
        fixed = self.network.buffers
        leaves = {name: t.detach().requires_grad_() for name, t in at.items() if name not in fixed}
        with torch.enable_grad():
            here = replace(self, params={**self.params, **at, **leaves})
            losses = here.loss() if objective is None else objective(here)
            # Each client's loss depends on its own slice only: the gradient of the sum holds all of theirs.
            found = gradients(losses.sum(), list(leaves.values()))
        return dict(zip(leaves, found, strict=True)), losses.detach()

    def split(self, count: int) -> list[Step]:
        """The batch as `count` batches, the i-th of every `count`-th sample from the i-th on.

        They differ by at most one sample; one that is empty has a cross-entropy of 0.
        """
        steps = []
        for first in range(count):
            own = slice(first, None, count)
            held = torch.div(self.count - first + count - 1, count, rounding_mode="floor")
            sample_weights = self.sample_weights[:, own] * (self.count / held.clamp(min=1))[:, None]
            x, y = self.x[:, own], self.y[:, own]
            steps.append(
                replace(self, x=x, y=y, sample_weights=sample_weights, count=held, places=own, quick=None)
            )
        return steps


# Each client's loss [m] in a step. It is differentiated by the tensors that the phase trains.
Objective = Callable[[Step], Tensor]


class Rule(ABC):
    """A step other than "gradient, optimiser, subtract".

    Attributes:
        batches: how many batches a step takes (`Step.split`); it is given so many times the batch size.
    """

    batches: ClassVar[int] = 1

    @abstractmethod
    def __call__(self, step: Step) -> Tensor:
        """Change those of ``step.params`` that are in ``step.rates``, in place, without recording gradients.

        Of a client that sits out the step all changes are undone. Optimiser, clipping, weight decay and masks
        are those of ``step.descend``: a rule that does not call it has none, and its method refuses what
        asks for them (`Algorithm.refuses`).

        Returns:
            Each client's loss [m] before the step, for the record.
        """
