"""Ditto: a global model by FedAvg and personal models pulled towards it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from pfl_benchmark.method import (
    Algorithm,
    Between,
    ClientStore,
    Ledger,
    LocalCall,
    LocalResult,
    Message,
    Params,
    Phase,
    Rule,
    RunContext,
    StackedModel,
    Step,
    expand,
    option,
    register,
    take_part,
)


@dataclass(frozen=True)
class DittoHyper:
    """Hyper-parameters of Ditto."""

    lam: float = option(
        1.0, "strength λ of the pull towards the global model as received", least=0, search=Between(0.01, 10)
    )
    personal_epochs: int = option(-1, "epochs of the personal model; -1: as many as --local-epochs", least=-1)


@dataclass(frozen=True)
class Pull(Rule):
    """A step of SGD and, outside of its momentum, a pull: ``w ← w − η m − η λ (w_old − anchor)``.

    All layers have one learning rate η.
    """

    strength: float

    def __call__(self, step: Step) -> Tensor:
        leaves = [step.params[name] for name in step.rates]
        pulls = torch._foreach_sub(leaves, [step.constants["anchor"][name] for name in step.rates])
        gradients, losses = step.gradient()
        step.descend(gradients)
        (rate,) = set(step.rates.values())
        torch._foreach_add_(leaves, list(pulls), alpha=-rate * self.strength)
        return losses


@register
class Ditto(Algorithm):
    """Participants train a copy of the global model, which is sent, and a personal model, which stays.

    Source: Li et al., ICML 2021, Algorithm 1; litian96/ditto flearn/trainers_MTL/ditto.py, FedRep
    models/Update.py (LocalUpdateDitto). The personal step is ``m ← 0.5 m + ∇ℓ(v); v ← v − η m − η λ (v_old −
    a)`` with the anchor `a` = the global model *as received*, as in FedRep; without momentum it is the
    official one.

    Defaults: λ = 1, as in the official run_fashion_clean_ditto_lam1.sh (main.py has 0). The personal model
    trains for as many epochs as the global one. Local work is twice that of FedAvg; the ledger shows it.

    Deviations: local SGD has momentum; the pull stays outside of other optimisers, and of clipping, too. The
    two models train one after the other, each in an order of its own; officially they alternate on the same
    batches.

    Traps: with ``--dynamic_lam 1`` the official code chooses λ among 0.1, 1 and 2 in every step, on
    validation data.
    """

    name = "ditto"
    title = "Ditto"
    reference = "Li et al., ICML 2021; litian96/ditto"
    group = "regularised"
    publication = (
        "Ditto: Fair and Robust Federated Learning Through Personalization",
        "Li, Tian and Hu, Shengyuan and Beirami, Ahmad and Smith, Virginia",
        "ICML",
        2021,
        "https://arxiv.org/abs/2012.04221",
    )
    pseudocode = (
        "w_k ← SGD(w), which is sent and averaged",
        "v_k ← v_k − η (∇ℓ(v_k) + λ (v_k − w))",
        "evaluate v_k",
    )
    Hyper = DittoHyper
    too_large = ("lam",)
    tuning = ({"lam": 0.1}, {"lam": 0.75}, {"lam": 2.0})
    personal_stream: ClassVar[str] = "batches-personal"

    def __init__(self, task: RunContext, hyper: DittoHyper) -> None:
        super().__init__(task, hyper)
        self.clients = ClientStore(task.initial, task.data.clients)  # the personal models v_k, whole nets

    def phases(self, round: int) -> list[Phase]:
        (common,) = super().phases(round)
        epochs = self.hyper.personal_epochs
        personal = replace(
            common,
            epochs=self.local_work if epochs < 0 else epochs,
            model="personal",
            stream=self.personal_stream,
            rule=Pull(self.hyper.lam),
            constants={"anchor": self.server},
        )
        return [common, personal]

    def message(self, clients: Sequence[int], round: int) -> Message:
        return Message(self.server, first=self.task.initial)

    def closing(self, clients: Sequence[int]) -> Message:
        return Message()  # clients are evaluated with what they keep

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        call = super().begin(clients, message, round)
        call.models["personal"] = StackedModel(self.network, self.clients.gather(clients))
        return call

    def keep(self, outcome: LocalResult) -> None:
        self.clients.scatter(outcome.clients, outcome.models["personal"])

    def assemble(self, clients: Sequence[int], message: Params) -> Params:
        """The global copies: nothing of them is kept."""
        return expand(message, len(clients))

    def admit(self, clients: Sequence[int], epochs: int, ledger: Ledger) -> None:
        """The personal model begins as the global one, which pulls it; the publication has no new clients."""
        self.clients.scatter(clients, expand(self.server, len(clients)))
        _, personal = self.phases(self.task.rounds + 1)
        take_part(self, clients, [replace(personal, epochs=epochs)], ledger)

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        return [StackedModel(self.network, self.clients.gather(clients))]
