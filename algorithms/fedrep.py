"""FedRep: shared body, personal head, trained one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pfl_benchmark.algorithms.fedper import FROZEN_EPOCHS, FedPer, FedPerHyper
from pfl_benchmark.method import Phase, option, register


@dataclass(frozen=True)
class FedRepHyper(FedPerHyper):
    """Hyper-parameters of FedRep."""

    head_epochs: int = option(
        -1, "epochs of the head, first; -1: what body_epochs leaves of --local-epochs, at least 1", least=-1
    )
    body_epochs: int = option(
        1,
        "epochs of the body with the head frozen, second",
        least=0,
        search=(1, 2, 3, 4),
    )


@register
class FedRep(FedPer):
    """Head phase, then body phase, each with a fresh optimiser that holds only its own parameters.

    Source: Collins et al., ICML 2021; lgcollins/FedRep main_fedrep.py, models/Update.py.

    Defaults: 4 epochs of the head and 1 of the body, since the paper gives every method 5 local epochs. With
    ``--local-epochs 1`` it is one of each, as in PFLlib. Officially 10 + 1 (CIFAR-10, S = 2) and 10 + 5, and
    ``--weight-decay 1e-4`` (none on biases).

    Deviations: the frozen part really is frozen. New clients begin from the common start; officially from an
    average head: ``--set personal_start=average``.

    Traps: with PyTorch before 2 the official code's shared optimiser moves the frozen part by momentum. It
    trains one round more than it is asked for, the last with everyone and the body frozen (``--set
    final_round=frozen``), and reports the mean accuracy of ten rounds as well.
    """

    name = "fedrep"
    title = "FedRep"
    reference = "Collins et al., ICML 2021; lgcollins/FedRep"
    group = "decoupled"
    publication = (
        "Exploiting Shared Representations for Personalized Federated Learning",
        "Collins, Liam and Hassani, Hamed and Mokhtari, Aryan and Shakkottai, Sanjay",
        "ICML",
        2021,
        "https://arxiv.org/abs/2102.07078",
    )
    pseudocode = (
        "h_k ← SGD(h_k) with the body θ frozen",
        "θ_k ← SGD(θ) with the head h_k frozen",
        "θ ← mean of the θ_k, h_k stays",
    )
    Hyper = FedRepHyper
    refuses: ClassVar[Mapping[str, str]] = {
        "local_steps": "which divides --local-epochs between head and body"
    }
    tuning = (
        {"head_epochs": 3, "body_epochs": 2},
        {"head_epochs": 1, "body_epochs": 4},
        {"head_epochs": 10, "body_epochs": 5},
    )

    def joint_phases(self, round: int) -> list[Phase]:
        return [
            Phase.of(self.personal_layers(), self.config.lr, self._head_epochs()),
            Phase.of(self.shared_layers(), self.config.lr, self.hyper.body_epochs),
        ]

    def _head_epochs(self) -> int:
        if self.hyper.head_epochs >= 0:
            return self.hyper.head_epochs
        return max(1, self.config.local_epochs - self.hyper.body_epochs)

    def _frozen_epochs(self) -> int:
        return max(FROZEN_EPOCHS, self._head_epochs())
