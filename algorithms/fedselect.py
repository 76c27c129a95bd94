"""FedSelect: every client makes those parameters its own that change most in its training, more and more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from pfl_benchmark.method import (
    Aggregator,
    Algorithm,
    ClientStore,
    Gathered,
    Ledger,
    LocalCall,
    LocalResult,
    Message,
    Params,
    Phase,
    Rule,
    RunContext,
    Step,
    add_prefix,
    along,
    exact,
    option,
    register,
    select,
    strip_prefix,
    take_part,
)

# What a client keeps: its last model, the masks of its own parameters in that training and in the next one,
# its model when they changed last, and how often it has taken part.
MODEL, USED, OWN, BEFORE, TAKEN = "model", "used", "own", "before", "taken.rounds"


@dataclass(frozen=True)
class FedSelectHyper:
    """Hyper-parameters of FedSelect."""

    rate: float = option(
        0.25,
        "share p of a tensor's shared parameters that become a client's own at a time (begin_with=own: of "
        "its own ones that become shared)",
        least=0, most=1, search=(0.05, 0.1, 0.25, 0.5),
    )  # fmt: skip
    limit: float = option(
        0.8,
        "share α of a tensor's parameters, above which no more become a client's own (begin_with=own: "
        "shared)",
        least=0, most=1, search=(0.3, 0.5, 0.8),
    )  # fmt: skip
    every: int = option(3, "participations between two choices", least=1, search=(1, 3, 10))
    begin_with: str = option(
        "shared", "what all parameters are at first; own: those that change least become shared",
        choices=("shared", "own"), search=("shared", "own"),
    )  # fmt: skip


def grown(mask: Tensor, moved: Tensor, rate: float, limit: float) -> Tensor:
    """A mask and the share `rate` of what is outside it that has moved most; itself above a share `limit`."""
    outside = moved[~mask]
    count = len(outside) - round((1 - rate) * len(outside))
    if count == 0 or int(mask.sum()) > limit * mask.numel():
        return mask
    return mask | (moved >= outside.topk(count).values[-1])


@dataclass(frozen=True)
class Part(Rule):
    """The engine's step on a client's own parameters, or on the others."""

    own: bool

    def __call__(self, step: Step) -> Tensor:
        masks = step.constants[OWN]
        parts = {name: masks[name] if self.own else 1 - masks[name] for name in step.rates}
        before = {name: step.params[name].clone() for name in step.rates}
        gradients, losses = step.gradient()
        step.descend({name: gradient * parts[name] for name, gradient in gradients.items()})
        for name, part in parts.items():  # weight decay moves the others, too
            step.params[name].copy_(torch.where(part > 0, step.params[name], before[name]))
        return losses


@register
class FedSelect(Algorithm):
    """In every epoch a client trains its own parameters, then the others, which are averaged.

    Every third time the share p of a weight's shared parameters with the largest |Δ| become its own, until
    more than the share α are; Δ is the change since the last choice. A shared parameter is averaged over
    those participants whose own it is not.

    Source: Tamirisa et al., CVPR 2024; lapisrocks/fedselect fedselect.py, lottery_ticket.py, broadcast.py,
    pflopt/optimizers.py.

    Defaults: p = 0.25, α = 0.8 and every third time, those of utils/options.py. All parameters are shared at
    first, as in the publication and in the official code. In its first version that was ``--invert``, and
    without it all were a client's own, of which those with the least |Δ| became shared: ``begin_with=own``.

    Deviations: the official participants are the same in all rounds; here a client counts its own
    participations. Local SGD has momentum, of its own in each pass. Statistics of batch normalisation are
    averaged, there they stay. With ``begin_with=own`` one parameter of a weight fewer becomes shared at a
    time, and θ_0, where a client's own begin, does not count as sent. Else whole models do, and masks with a
    byte a parameter.

    Traps: an epoch is two passes over the data. Biases stay what they are at first. What has become a
    client's own goes on from the average, not from the client's model.
    """

    name = "fedselect"
    title = "FedSelect"
    reference = "Tamirisa et al., CVPR 2024; lapisrocks/fedselect"
    group = "decoupled"
    publication = (
        "FedSelect: Personalized Federated Learning with Customized Selection of Parameters for Fine-Tuning",
        "Tamirisa, Rishub and Xie, Chulin and Bao, Wenxuan and Zhou, Andy and Arel, Ron and Shamsian, Aviv",
        "CVPR",
        2024,
        "https://arxiv.org/abs/2404.02478",
    )
    pseudocode = (
        "w_k ← M_k ⊙ w_k + (1 − M_k) ⊙ w; each epoch SGD on M_k ⊙ w_k, then on (1 − M_k) ⊙ w_k",
        "w ← mean of the w_k over those with M_k = 0, for each parameter",
        "M_k ← M_k and the share p of the others with largest |Δw_k|, up to the share α",
    )
    Hyper = FedSelectHyper
    averages = False  # its uploads have masks, too
    keeps_trained = False  # but what it needs of it
    refuses: ClassVar[Mapping[str, str]] = {"local_steps": "which trains two parts in turn, epoch by epoch"}
    tuning = ({"rate": 0.05}, {"limit": 0.5}, {"every": 1}, {"begin_with": "own"})

    def __init__(self, task: RunContext, hyper: FedSelectHyper) -> None:
        super().__init__(task, hyper)
        initial, trained = select(task.initial, self.network.shapes()), {*self.network.trainable}
        masks = {
            name: torch.full_like(tensor, hyper.begin_with == "own" and name in trained, dtype=torch.bool)
            for name, tensor in initial.items()
        }
        kept = {**add_prefix(MODEL, initial), **add_prefix(BEFORE, initial)}
        kept |= {**add_prefix(USED, masks), **add_prefix(OWN, masks)}
        self.clients = ClientStore(
            {**kept, TAKEN: torch.zeros(1, device=task.data.device)}, task.data.clients
        )

    def phases(self, round: int) -> list[Phase]:
        one = Phase.of(self.network.names, self.config.lr, 1)
        passes = [replace(one, rule=Part(own)) for own in (True, False)]
        return passes * self.config.local_epochs

    def assemble(self, clients: Sequence[int], message: Params) -> Params:
        """Own parameters of the last training, and the others as received."""
        kept = self.clients.gather(clients)
        model, used = strip_prefix(MODEL, kept), strip_prefix(USED, kept)
        return {name: torch.where(used[name], tensor, message[name]) for name, tensor in model.items()}

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        masks = strip_prefix(OWN, self.clients.gather(clients))
        call.constants[OWN] = {name: masks[name].to(t) for name, t in self.task.initial.items()}
        return call

    def upload(self, outcome: LocalResult) -> Params:
        model, masks = outcome.models["model"], strip_prefix(OWN, self.clients.gather(outcome.clients))
        shared = {name: model[name].masked_fill(mask, 0) for name, mask in masks.items()}
        return {**shared, **add_prefix(OWN, select(masks, self.network.trainable))}

    def keep(self, outcome: LocalResult) -> None:
        kept, model = self.clients.gather(outcome.clients), select(outcome.models["model"], self.server)
        masks, before = strip_prefix(OWN, kept), strip_prefix(BEFORE, kept)
        taken = kept[TAKEN]
        due = (taken > 0) & (taken % self.hyper.every == 0)
        weights = [name for name in self.network.trainable if "weight" in name]
        chosen = {name: self._chosen(masks[name], model[name] - before[name], due) for name in weights}
        noted = {
            name: torch.where(along(due, tensor), tensor, before[name]) for name, tensor in model.items()
        }
        kept = {**add_prefix(MODEL, model), **add_prefix(USED, masks), **add_prefix(BEFORE, noted)}
        kept |= {**add_prefix(OWN, {**masks, **chosen}), TAKEN: taken + 1}
        self.clients.scatter(outcome.clients, kept)

    def _chosen(self, masks: Tensor, changes: Tensor, due: Tensor) -> Tensor:
        """The masks of a weight [m, ...] for the next training; of clients that are not `due` as they are."""
        rate, limit, found = self.hyper.rate, self.hyper.limit, masks.clone()
        for place in due.flatten().nonzero().flatten().tolist():
            mask, moved = masks[place], changes[place].abs()
            grows = self.hyper.begin_with == "shared"
            found[place] = grown(mask, moved, rate, limit) if grows else ~grown(~mask, -moved, rate, limit)
        return found

    def aggregator(self) -> Aggregator:
        return Gathered()

    def aggregate(self, mean: Params) -> None:
        masks = strip_prefix(OWN, mean)
        for name, old in self.server.items():
            models = exact(mean[name])
            weights = along(mean[Gathered.WEIGHTS], models).to(models)
            if name in masks:
                weights = weights * exact(~masks[name])
            total = weights.expand(models.shape).sum(0)
            averaged = (weights * models).sum(0) / total.clamp(min=1e-12)
            self.server[name] = torch.where((total > 0).to(old.device), averaged.to(old), old)

    def admit(self, clients: Sequence[int], epochs: int, ledger: Ledger) -> None:
        """Where all parameters are a client's own at first, it trains them; else it has none to train."""
        if self.hyper.begin_with == "shared":
            super().admit(clients, epochs, ledger)
        else:
            own, _ = self.phases(self.task.rounds + 1)[:2]
            take_part(self, clients, [replace(own, epochs=epochs)], ledger)
