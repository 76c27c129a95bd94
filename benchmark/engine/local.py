"""The vocabulary of local training: what a method asks for, and what comes back.

A method describes the work of a cohort as a `LocalCall`: stacked start parameters and a list of phases.
Executors differ in how they carry it out, never in what it means (`benchmark.engine.sgd`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from benchmark.engine.streams import Purpose
from benchmark.models import Network, Params

__all__ = ["LocalCall", "LocalModel", "Outcome", "Phase", "Proximal"]


@dataclass(frozen=True)
class Proximal:
    """Pull towards an anchor, outside the momentum buffer: ``w ← w − η m − η λ (w_old − anchor)`` (Ditto)."""

    strength: float
    anchor: Params  # one model, common to the cohort


@dataclass(frozen=True)
class Phase:
    """Some epochs of SGD on one of the call's models.

    Attributes:
        rates: learning rate by layer name; a layer not named is frozen and its gradients are not computed.
        epochs: passes over the client's training data.
        model: which of the call's models is trained.
        stream: the random stream of batch orders; phases that name the same one continue it.
        proximal: optional pull.
        masks: optional 0/1 tensors by parameter name, common to the cohort, applied to the gradients, so
            that masked entries never move.
        collect: name of a layer whose inputs are collected at every step, before the step.
    """

    rates: Mapping[str, float]
    epochs: int
    model: str = "model"
    stream: Purpose = "batches-main"
    proximal: Proximal | None = None
    masks: Params | None = None
    collect: str | None = None

    @staticmethod
    def of(layers: Iterable[str], lr: float, epochs: int) -> Phase:
        """A phase that trains `layers` at one learning rate."""
        return Phase(dict.fromkeys(layers, lr), epochs)


@dataclass
class LocalModel:
    """A network and its stacked parameters [m, ...]."""

    network: Network
    params: Params


@dataclass
class LocalCall:
    """The local work of some clients in one round."""

    round: int
    clients: list[int]
    models: dict[str, LocalModel]
    phases: list[Phase]
    sample_weights: list[Tensor] | None = None  # of the loss, per client [n_k], mean 1; None: ones
    # Per client [n_k], on the host: every epoch draws n_k samples with replacement, in proportion to these.
    # None: every epoch takes each sample once.
    chances: list[Tensor] | None = None


@dataclass
class Outcome:
    """What local training returned, clients in the order of the call.

    Attributes:
        models: trained parameters by model name, stacked [m, ...].
        loss: mean training loss of each client over the call's last epoch [m]; 0 if nothing was trained.
        samples, steps: samples processed and SGD steps taken, over all clients.
        features: per client, inputs of the collected layer [N, d] and their labels [N], if asked for.
    """

    round: int
    clients: list[int]
    models: dict[str, Params]
    loss: Tensor
    samples: int
    steps: int
    features: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    @staticmethod
    def join(parts: Sequence[Outcome]) -> Outcome:
        """The outcomes of parts of a call, one after the other, as one."""
        models = {
            slot: {name: torch.cat([part.models[slot][name] for part in parts]) for name in tensors}
            for slot, tensors in parts[0].models.items()
        }
        return Outcome(
            round=parts[0].round,
            clients=[client for part in parts for client in part.clients],
            models=models,
            loss=torch.cat([part.loss for part in parts]),
            samples=sum(part.samples for part in parts),
            steps=sum(part.steps for part in parts),
            features=[own for part in parts for own in part.features],
        )
