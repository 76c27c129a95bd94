"""Model reduction: interchangeable ways to shrink the fully connected layers of later stages.

Source: paper, section 4.1 and appendix "Model Reduction". Its transmitted shares (83.8 % on CIFAR-100)
show that *all* fully connected layers are factorised from stage 3 on, shared ones included.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from pfl_benchmark.algorithms.ppfe.hyper import FIRST_REDUCED_STAGE, PPFEHyper
from pfl_benchmark.method import Layer, Linear, LowRank, Network, Params, Streams, UserError, exact

# Ranks of the first and second reduced model by the widths of the fully connected layers. The first is the
# paper's; 200 follows from its 83.8 %, the others keep its reductions of about 6 % and 18 % where they can.
RANKS: dict[tuple[int, ...], tuple[int, ...]] = {
    (1600, 120, 64, 10): (100, 50, 24, 80, 40, 16),  # CIFAR-10
    (3200, 256, 128, 100): (200, 100, 50, 180, 90, 45),  # CIFAR-100
    (1024, 128, 64, 26): (100, 50, 24, 80, 40, 16),  # EMNIST Letters
    (128, 256, 128, 2): (64, 64, 2, 20, 20, 2),  # Sent140
}
# Any other net or stage: the highest ranks, as one share of every layer's largest possible rank, that shrink
# the whole network by at least the paper's 6 % and 18 % (and by 12 points more in each further stage).
SHRINKAGE = (0.06, 0.18)


def factor(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Factor matrices by thin singular value decompositions, in float64.

    Args:
        weight: stacked matrices [m, out, in].
        rank: singular values kept; a rank above min(out, in) pads with zeros.

    Returns:
        ``first`` [m, rank, in] and ``second`` [m, out, rank] with the singular values split evenly, so that
        ``second @ first`` is the best approximation of that rank. Signs are fixed: the entry of largest
        magnitude of each left vector is positive.
    """
    if weight.stride(0) == 0 and len(weight) > 1:  # views of one matrix: once is enough
        first, second = factor(weight[:1], rank)
        return first.expand(len(weight), -1, -1), second.expand(len(weight), -1, -1)
    u, s, vh = torch.linalg.svd(exact(weight), full_matrices=False)
    largest = u.abs().argmax(dim=1, keepdim=True)
    sign = u.gather(1, largest).sign()  # [m, 1, min(out, in)]
    root = s[:, :rank].sqrt()
    first = (root * sign[:, 0, :rank]).unsqueeze(2) * vh[:, :rank]
    second = u[:, :, :rank] * (sign[:, :, :rank] * root.unsqueeze(1))
    missing = rank - first.shape[1]
    if missing > 0:
        first = torch.nn.functional.pad(first, (0, 0, 0, missing))
        second = torch.nn.functional.pad(second, (0, missing))
    return first.to(weight), second.to(weight)


def product(layer: Layer, params: Mapping[str, Tensor]) -> Tensor:
    """The dense weight [m, out, in] of a fully connected layer, factorised or not."""
    if isinstance(layer, LowRank):
        return params[f"{layer.name}.second"] @ params[f"{layer.name}.first"]
    return params[f"{layer.name}.weight"]


@dataclass(frozen=True)
class Step:
    """From the network of one stage to that of the next.

    Attributes:
        personal: personal layers of the target stage.
    """

    source: Network
    target: Network
    personal: tuple[str, ...]


class Reduction(ABC):
    """How the network of a stage looks and how its parameters start.

    Args:
        network: the unreduced network.

    Attributes:
        earliest: the first stage that it may change anything in.
    """

    earliest: ClassVar[int] = 2

    def __init__(self, network: Network, hyper: PPFEHyper, streams: Streams) -> None:
        self.dense, self.hyper, self.streams = network, hyper, streams

    @classmethod
    def check(cls, network: Network, hyper: PPFEHyper) -> None:
        """Raise a `UserError` for hyper-parameters that do not fit the network (by default any do)."""
        return

    @abstractmethod
    def network(self, stage: int, personal: tuple[str, ...]) -> Network:
        """The network of a stage."""

    @abstractmethod
    def convert(self, params: Params, step: Step, layers: Iterable[str]) -> Params:
        """Start values of the target's `layers` from whole or partial stacked models of the source [m, ...].

        `params` holds these layers and, where they matter, their neighbours.
        """

    def masks(self, network: Network, personal: tuple[str, ...]) -> Params | None:
        """0/1 masks of weights by tensor name, common to all clients, if the reduction uses any."""
        return None


class NoReduction(Reduction):
    """Dense networks in all stages (the paper's ablation "without MR")."""

    earliest = FIRST_REDUCED_STAGE

    def network(self, stage: int, personal: tuple[str, ...]) -> Network:
        return self.dense

    def convert(self, params: Params, step: Step, layers: Iterable[str]) -> Params:
        return {key: params[key] for key in step.target.keys(layers)}


class SparseReduction(NoReduction):
    """Dense networks whose personal weights are masked: fixed positions, the same for all clients and stages.

    Exactly floor(p · numel) entries are zero; biases are free and nothing is rescaled. A layer keeps the
    rate it got when it became personal: 30, 40, 50 % by default.
    """

    earliest = 2

    def __init__(self, network: Network, hyper: PPFEHyper, streams: Streams) -> None:
        super().__init__(network, hyper, streams)
        self._mask = cache(self._draw)  # phases and plans ask for those of every round

    @classmethod
    def check(cls, network: Network, hyper: PPFEHyper) -> None:
        most = _most_personal(hyper)
        if len(hyper.mask_rates) < most:
            raise UserError(
                f"mask_rates has {len(hyper.mask_rates)} rate(s), but {most} layers become personal; "
                f"give {most} numbers separated by commas"
            )

    def masks(self, network: Network, personal: tuple[str, ...]) -> Params | None:
        return {f"{name}.weight": self._mask(name, order) for order, name in enumerate(reversed(personal))}

    def _draw(self, name: str, order: int) -> Tensor:
        """The mask of a layer that becomes personal as number `order` from the last one."""
        shape = self.dense.shapes([name])[f"{name}.weight"]
        count = math.prod(shape)
        rng = self.streams.get("mask", self.dense.index(name))
        mask = torch.ones(count)
        mask[rng.permutation(count)[: math.floor(self.hyper.mask_rates[order] * count + 1e-9)]] = 0
        return mask.reshape(shape)

    def convert(self, params: Params, step: Step, layers: Iterable[str]) -> Params:
        values = super().convert(params, step, layers)
        masks = self.masks(step.target, step.personal) or {}
        return {key: v * masks[key].to(v.device) if key in masks else v for key, v in values.items()}


class SvdReduction(Reduction):
    """Every fully connected layer becomes a pair of factors from stage 3 on, slimmer in each later stage."""

    earliest = FIRST_REDUCED_STAGE

    @classmethod
    def check(cls, network: Network, hyper: PPFEHyper) -> None:
        layers = len(network.splittable)
        reduced = max(0, hyper.T - FIRST_REDUCED_STAGE + 1)
        if hyper.ranks and len(hyper.ranks) != layers * reduced:
            raise UserError(
                f"ranks has {len(hyper.ranks)} number(s); expected {layers * reduced}: one for each of the "
                f"{layers} fully connected layers in each of the {reduced} reduced stages"
            )

    def network(self, stage: int, personal: tuple[str, ...]) -> Network:
        if stage < FIRST_REDUCED_STAGE:
            return self.dense
        changed: dict[str, Layer] = {}
        for name, rank in zip(self.dense.splittable, self._ranks(stage), strict=True):
            layer = self.dense.layer(name)
            assert isinstance(layer, Linear)
            most = min(layer.inputs, layer.outputs)
            rank = rank if self.hyper.factor_policy == "literal" else min(rank, most)
            if self._stays_dense(layer, rank):
                continue
            changed[name] = LowRank.of(layer, rank)
        return self.dense.with_layers(changed)

    def _ranks(self, stage: int) -> tuple[int, ...]:
        names = self.dense.splittable
        linear = [self.dense.layer(name) for name in names]
        widths = tuple(layer.inputs for layer in linear if isinstance(layer, Linear))
        last = linear[-1]
        assert isinstance(last, Linear)
        ranks = self.hyper.ranks or RANKS.get((*widths, last.outputs), ())
        step = stage - FIRST_REDUCED_STAGE
        stated = ranks[step * len(names) : (step + 1) * len(names)]
        if stated:
            return stated
        sizes = [(layer.inputs, layer.outputs) for layer in linear if isinstance(layer, Linear)]
        fewer = self.dense.count() * (SHRINKAGE[0] + step * (SHRINKAGE[1] - SHRINKAGE[0]))
        for percent in range(100, 0, -1):
            chosen = tuple(max(1, round(percent / 100 * min(size))) for size in sizes)
            if sum(i * o - r * (i + o) for (i, o), r in zip(sizes, chosen, strict=True)) >= fewer:
                break
        return chosen

    def _stays_dense(self, layer: Linear, rank: int) -> bool:
        policy = self.hyper.factor_policy
        if policy == "skip_last":
            return layer.name == self.dense.names[-1]
        return (
            policy == "skip_if_not_smaller"
            and rank * (layer.inputs + layer.outputs) >= layer.inputs * layer.outputs
        )

    def convert(self, params: Params, step: Step, layers: Iterable[str]) -> Params:
        values: Params = {}
        for name in layers:
            old, new = step.source.layer(name), step.target.layer(name)
            if isinstance(new, LowRank):
                weight = product(old, params)
                values[f"{name}.first"], values[f"{name}.second"] = factor(weight, new.rank)
            elif isinstance(old, LowRank):
                values[f"{name}.weight"] = product(old, params)
            values.update({key: params[key] for key in step.target.keys([name]) if key not in values})
        return values


class WidthReduction(Reduction):
    """Personal hidden layers of stage t keep W·t^(−α) units: those with the largest incoming weights.

    The paper's alternative to factorising (section 4.1; Corollary 1 uses it). Shared layers keep their width.
    """

    earliest = FIRST_REDUCED_STAGE

    def network(self, stage: int, personal: tuple[str, ...]) -> Network:
        if stage < FIRST_REDUCED_STAGE:
            return self.dense
        changed: dict[str, Layer] = {}
        inputs: int | None = None  # of the next layer, if the one before it has shrunk
        for name in self.dense.splittable:
            layer = self.dense.layer(name)
            assert isinstance(layer, Linear)
            if inputs is not None:
                layer = replace(layer, inputs=inputs)
            inputs = None
            if name in personal and name != self.dense.names[-1]:
                inputs = max(1, round(layer.outputs * stage**-self.hyper.width_alpha))
                layer = replace(layer, outputs=inputs)
            changed[name] = layer
        return self.dense.with_layers(changed)

    def convert(self, params: Params, step: Step, layers: Iterable[str]) -> Params:
        values: Params = {}
        units: Tensor | None = None  # kept inputs of the next layer [m, count]
        for layer in step.target.layers:
            key, bias = f"{layer.name}.weight", f"{layer.name}.bias"
            if not isinstance(layer, Linear):
                values.update({name: params[name] for name in layer.shapes() if layer.name in layers})
                continue
            if key not in params:
                continue
            weight, offset = params[key], params.get(bias)
            if units is not None:
                weight = weight.gather(2, units.unsqueeze(1).expand(-1, weight.shape[1], -1))
            units = None
            if layer.outputs < weight.shape[1]:
                strongest = weight.norm(dim=2).topk(layer.outputs, dim=1).indices
                units = strongest.sort(dim=1).values
                weight = weight.gather(1, units.unsqueeze(2).expand(-1, -1, weight.shape[2]))
                offset = offset.gather(1, units) if offset is not None else None
            if layer.name in layers:
                values[key] = weight
                if offset is not None:
                    values[bias] = offset
        return values


def _most_personal(hyper: PPFEHyper) -> int:
    """Personal layers of the last stage."""
    return hyper.heads or hyper.T - 1


REDUCTIONS: dict[str, type[Reduction]] = {
    "svd": SvdReduction,
    "sparse": SparseReduction,
    "width": WidthReduction,
    "none": NoReduction,
}
