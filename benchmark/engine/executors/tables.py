"""What a phase's steps need to know, laid out in advance as tables with one row a step.

Everything that differs from step to step (which samples, how many, whose turn it is, dropout masks) is drawn
on the host before the first step and uploaded once; a step picks its row by a counter on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pfl_benchmark.engine.local import Phase
from pfl_benchmark.engine.sgd import epoch_order, epoch_parts
from pfl_benchmark.engine.step import Draw
from pfl_benchmark.models import Network, Params

DropShape = tuple[tuple[int, ...], float]  # shape [m, B, ...] and rate of one mask


@dataclass(frozen=True)
class Tables:
    """The batches of one phase for all steps and clients, on the host.

    Attributes:
        rows: positions in each client's data [steps, m, B], 0 where a place is filled up.
        counts: batch sizes [steps, m]; 0 for a client that has no batch in the step.
        scale: 1 / batch size where a place holds a sample, 0 elsewhere [steps, m, B].
        share: batch size / samples of the client in the last epoch, 0 before [steps, m].
        begins: the steps with which epochs begin, and whose (positions); None: everyone's.
    """

    rows: np.ndarray
    counts: np.ndarray
    scale: np.ndarray
    share: np.ndarray
    begins: Sequence[tuple[int, list[int] | None]]

    @property
    def everyone(self) -> bool:
        """True if no client ever sits out a step."""
        return bool((self.counts > 0).all())

    def taken(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Steps and places of the samples of the k-th client, in the order in which they are used."""
        steps, places = np.nonzero(self.scale[:, k])
        return steps, places


def draw_tables(
    sizes: Sequence[int],
    epochs: int,
    batch: int,
    rngs: Sequence[np.random.Generator],
    chances: Sequence[Tensor] | None = None,
) -> Tables:
    """Draw the orders of a phase and lay its batches out; `sizes`, `rngs` and `chances` are the clients'."""
    per_epoch = -(-max(sizes) // batch)
    shape = (epochs, len(sizes), per_epoch * batch)
    rows, filled = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    for k, (size, rng) in enumerate(zip(sizes, rngs, strict=True)):
        filled[:, k, :size] = True
        for epoch in range(epochs):
            rows[epoch, k, :size] = epoch_order(rng, size, chances[k] if chances is not None else None)

    def by_step(table: np.ndarray) -> np.ndarray:
        split = table.reshape(epochs, len(sizes), per_epoch, batch).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(split).reshape(epochs * per_epoch, len(sizes), batch)

    taken = by_step(filled)
    counts = taken.sum(axis=2)
    scale = (taken / np.maximum(counts, 1)[:, :, None]).astype(np.float32)
    share = (counts / np.asarray(sizes)).astype(np.float32)
    share[: (epochs - 1) * per_epoch] = 0
    begins = [(epoch * per_epoch, None) for epoch in range(epochs)]
    return Tables(by_step(rows), counts, scale, share, begins)


def draw_batches(
    sizes: Sequence[int],
    phase: Phase,
    batch_size: int,
    places: int,
    rngs: Sequence[np.random.Generator],
    chances: Sequence[Tensor] | None = None,
) -> Tables:
    """As `draw_tables` for a phase by batches: nobody waits for others at the end of an epoch.

    Args:
        places: of a step.
    """
    steps = phase.steps(max(sizes), batch_size)
    rows = np.zeros((steps, len(sizes), places), dtype=np.int64)
    counts, share = (np.zeros((steps, len(sizes)), dtype=kind) for kind in (np.int64, np.float32))
    begins: dict[int, list[int]] = {}
    for k, (size, rng) in enumerate(zip(sizes, rngs, strict=True)):
        step = 0
        for taken in epoch_parts(phase, size, batch_size):
            begins.setdefault(step, []).append(k)
            order = epoch_order(rng, size, chances[k] if chances is not None else None)[:taken]
            share[:, k] = 0
            for batch in np.split(order, range(places, taken, places)):
                rows[step, k, : len(batch)] = batch
                counts[step, k], share[step, k] = len(batch), len(batch) / taken
                step += 1
    filled = np.arange(places) < counts[:, :, None]
    scale = (filled / np.maximum(counts, 1)[:, :, None]).astype(np.float32)
    return Tables(rows, counts, scale, share, sorted(begins.items()))


def dropout_shapes(
    network: Network, phase: Phase, start: int, params: Params, x: Tensor
) -> tuple[DropShape, ...]:
    """The masks that a step from layer `start` on asks for, in that order; nothing is computed.

    Args:
        params, x: stacked parameters and input of the step, of which only the shapes matter.
    """
    asked: list[DropShape] = []

    def ask(shape: tuple[int, ...], rate: float) -> Tensor:
        asked.append((shape, rate))
        return torch.empty(shape, device="meta")

    if any(layer.drops for layer in network.layers[start:]):
        shapes = {name: torch.empty_like(tensor, device="meta") for name, tensor in params.items()}
        network.apply_stacked(shapes, torch.empty_like(x, device="meta"), start, None, ask)
    return tuple(asked)


def draw_dropout(
    shapes: Sequence[DropShape], counts: np.ndarray, rngs: Sequence[np.random.Generator]
) -> list[np.ndarray]:
    """What dropout keeps, a table [steps, m, B, ...] of bool for each mask.

    At every step every client draws as many rows as its batch has, from its own stream, mask by mask.
    """
    tables = [np.zeros((len(counts), *shape), dtype=bool) for shape, _ in shapes]
    for k, rng in enumerate(rngs):
        for step, count in enumerate(counts[:, k]):
            if count:
                for table, (shape, rate) in zip(tables, shapes, strict=True):
                    drawn = rng.random((count, *shape[2:]), dtype=np.float32)
                    table[step, k, :count] = drawn >= rate
    return tables


def draw_numbers(
    draw: Draw, batch: int, counts: np.ndarray, rngs: Sequence[np.random.Generator]
) -> np.ndarray:
    """The random numbers of all steps [steps, m, B, ...]; 0 where a place holds no sample."""
    table = np.zeros((*counts.shape, batch, *draw.shape), dtype=np.float32)
    for k, rng in enumerate(rngs):
        for step, count in enumerate(counts[:, k]):
            if count:
                table[step, k, :count] = draw.rows(rng, count)
    return table
