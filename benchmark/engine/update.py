"""Optimisers of local training: what a step makes of gradients, on one client's tensors or on stacked ones.

They are those of PyTorch, with a fresh state for every phase, of each client by itself.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.local import Phase
from pfl_benchmark.engine.params import along
from pfl_benchmark.models import Network, Params

_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # torch.optim.Adam's
_TINY = 1e-6  # added to norms before they divide, as in torch.nn.utils.clip_grad_norm_


@dataclass(frozen=True)
class Recipe:
    """How a run takes its local steps, whatever the phase."""

    optimizer: str
    momentum: float
    nesterov: bool
    weight_decay: float
    clip_norm: float
    label_smoothing: float

    @staticmethod
    def of(config: RunConfig) -> Recipe:
        """The recipe of a configuration."""
        return Recipe(
            config.optimizer,
            config.momentum,
            config.nesterov,
            config.weight_decay,
            config.clip_norm,
            config.label_smoothing,
        )

    @property
    def copies(self) -> int:
        """Tensors like the parameters that a step holds: start, trained, gradients; old and new state."""
        return 5 if self.optimizer == "sgd" else 8

    def update(self, network: Network, params: Params, phase: Phase, clients: int = 0) -> Update:
        """The update rule of a phase.

        Args:
            params: as of `Update`, and so are `clients`.
        """
        if self.optimizer == "sgd":
            kind: type[Update] = Nesterov if self.nesterov else SGD
        else:
            kind = AdamW if self.optimizer == "adamw" else Adam
        return kind(self, network, params, phase, clients)


class Update(ABC):
    """The update rule of one phase, in place, on one client's tensors or on stacked ones.

    Args:
        params: whose trained tensors are changed.
        clients: rows of stacked `params`; 0: they are one client's.

    Attributes:
        names: of the trained tensors: those of the phase's layers, and what it trains beside the network.
        leaves: the trained tensors, whose gradients it takes.
        rates: their learning rates, by name.
        factor: a tensor that they are multiplied by, if there is one.
        state: all that it keeps from step to step, zero at first.
    """

    def __init__(
        self, recipe: Recipe, network: Network, params: Params, phase: Phase, clients: int = 0
    ) -> None:
        self._recipe, self._clients = recipe, clients
        own, fixed = network.shapes(), network.buffers
        beside = [
            name
            for name in params
            if name not in own and name.split(".")[0] in phase.rates and name.partition(".")[2] not in fixed
        ]
        self.names = [*(name for name in network.keys(phase.rates) if name not in fixed), *beside]
        self.leaves = [params[name].requires_grad_() for name in self.names]
        self.rates = {name: phase.rates[name.split(".")[0]] for name in self.names}
        self.factor: Tensor | None = None
        self.state: list[Tensor] = []
        # One entry per learning rate: positions of the tensors that have it.
        self._groups: dict[float, list[int]] = {}
        for position, rate in enumerate(self.rates.values()):
            self._groups.setdefault(rate, []).append(position)
        self._decayed = [i for i, name in enumerate(self.names) if ".bias" not in name]
        masks = phase.masks or {}
        self._masked = [(i, masks[name]) for i, name in enumerate(self.names) if name in masks]
        self._penalty, self._limit = recipe.weight_decay, recipe.clip_norm

    def descend(self, gradients: Mapping[str, Tensor], present: Tensor | None = None) -> None:
        """One step, by gradients under the tensors' names."""
        self([gradients[name] for name in self.names], present)

    @torch.no_grad()
    def __call__(self, gradients: Sequence[Tensor], present: Tensor | None = None) -> None:
        """One step.

        Args:
            present: of stacked tensors, 1 for each client that has a batch and 0 for the others, which keep
                their parameters and state [m]; None stands for ones.
        """
        grads = list(gradients)
        if self._limit:
            self._clip(grads)
        if self._penalty:
            for i in self._decayed:
                grads[i] = grads[i].add(self.leaves[i], alpha=self._penalty)
        for i, mask in self._masked:
            grads[i] = grads[i] * mask
        changes = self._changes(grads, present)
        if self.factor is not None:
            changes = [change * self.factor for change in changes]
        for rate, members in self._groups.items():
            leaves = [self.leaves[i] for i in members]
            torch._foreach_add_(leaves, [changes[i] for i in members], alpha=-rate)

    @abstractmethod
    def _changes(self, grads: list[Tensor], present: Tensor | None) -> Sequence[Tensor]:
        """What is subtracted at a learning rate of 1; the state goes on."""

    def _clip(self, grads: list[Tensor]) -> None:
        """Scale each client's gradient down to the largest norm; what is masked does not count."""
        for i, mask in self._masked:
            grads[i] = grads[i] * mask
        rows = [grad.reshape(self._clients or 1, -1) for grad in grads]
        norms = torch.stack([row.square().sum(1) for row in rows]).sum(0).sqrt()
        scales = (self._limit / (norms + _TINY)).clamp(max=1)
        grads[:] = [grad * (along(scales, grad) if self._clients else scales[0]) for grad in grads]

    def _zeros(self) -> list[Tensor]:
        """A tensor like each leaf, which belongs to the state."""
        found = [torch.zeros_like(leaf, requires_grad=False) for leaf in self.leaves]
        self.state += found
        return found

    def _put(self, state: Sequence[Tensor], fresh: Sequence[Tensor], present: Tensor) -> None:
        """Let the state of the clients that are here go on."""
        for old, new in zip(state, fresh, strict=True):
            old.copy_(torch.where(along(present, old) > 0, new, old))

    def release(self) -> None:
        """End of the phase: the tensors become plain values again."""
        for leaf in self.leaves:
            leaf.requires_grad_(False)


class SGD(Update):
    """SGD with momentum, without dampening."""

    def __init__(
        self, recipe: Recipe, network: Network, params: Params, phase: Phase, clients: int = 0
    ) -> None:
        super().__init__(recipe, network, params, phase, clients)
        self._momentum = recipe.momentum
        self.buffers = self._zeros()

    def _changes(self, grads: list[Tensor], present: Tensor | None) -> Sequence[Tensor]:
        if present is None:
            torch._foreach_mul_(self.buffers, self._momentum)
            torch._foreach_add_(self.buffers, grads)
            return self.buffers
        here = [along(present, leaf) for leaf in self.leaves]
        fresh = torch._foreach_mul(self.buffers, self._momentum)
        torch._foreach_add_(fresh, grads)
        self._put(self.buffers, fresh, present)
        return torch._foreach_mul(self.buffers, here)


class Nesterov(SGD):
    """SGD with Nesterov's momentum: the gradient, and the momentum that the next step would have."""

    def _changes(self, grads: list[Tensor], present: Tensor | None) -> Sequence[Tensor]:
        momentum = [*super()._changes(grads, present)]
        ahead = [*torch._foreach_add(grads, momentum, alpha=self._momentum)]
        if present is not None:
            torch._foreach_mul_(ahead, [along(present, leaf) for leaf in self.leaves])
        return ahead


class Adam(Update):
    """Adam; the weight penalty is part of the gradient."""

    def __init__(
        self, recipe: Recipe, network: Network, params: Params, phase: Phase, clients: int = 0
    ) -> None:
        super().__init__(recipe, network, params, phase, clients)
        self._means, self._squares = self._zeros(), self._zeros()
        self._taken = torch.zeros([clients] if clients else [], device=next(iter(params.values())).device)
        self.state.append(self._taken)

    def _changes(self, grads: list[Tensor], present: Tensor | None) -> Sequence[Tensor]:
        first, second = _BETAS
        means = torch._foreach_lerp(self._means, grads, 1 - first)
        squares = torch._foreach_mul(self._squares, second)
        torch._foreach_addcmul_(squares, grads, grads, value=1 - second)
        if present is None:
            torch._foreach_copy_([*self._means, *self._squares], [*means, *squares])
            self._taken.add_(1)
        else:
            self._put([*self._means, *self._squares], [*means, *squares], present)
            self._taken.add_(present)
        # 1 − β^t, exactly enough in float32
        shares = [-torch.expm1(self._taken * math.log(beta)) for beta in _BETAS]
        found = []
        for mean, square, leaf in zip(means, squares, self.leaves, strict=True):
            one, other = (along(s, leaf) if self._clients else s for s in shares)
            change = mean / one / (square.sqrt() / other.sqrt() + _EPSILON)
            # whoever has had no batch yet divides zero by zero
            found.append(change if present is None else change.where(along(present, leaf) > 0, 0))
        return found


class AdamW(Adam):
    """Adam whose weight penalty is apart from the gradient: a step also takes a share of the weights."""

    def __init__(
        self, recipe: Recipe, network: Network, params: Params, phase: Phase, clients: int = 0
    ) -> None:
        super().__init__(recipe, network, params, phase, clients)
        self._penalty = 0.0
        masks = dict(self._masked)
        self._shrunk = [(i, masks.get(i)) for i in self._decayed] if recipe.weight_decay else []

    def _changes(self, grads: list[Tensor], present: Tensor | None) -> Sequence[Tensor]:
        changes = [*super()._changes(grads, present)]
        for i, mask in self._shrunk:
            share = self._recipe.weight_decay * self.leaves[i]
            share = share if mask is None else share * mask
            share = share if present is None else share * along(present, share)
            changes[i] = changes[i] + share
        return changes
