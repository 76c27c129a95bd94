"""FedBABU: the body is trained under a head that nobody trains, then everyone fine-tunes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pfl_benchmark.algorithms.adaptation import FineTuning, check_fine_tuning, fine_tuning
from pfl_benchmark.method import (
    Algorithm,
    Message,
    Network,
    Phase,
    RunConfig,
    SharedRounds,
    option,
    register,
    select,
)

LR_STEPS, LR_FACTOR = (0.5, 0.75), 0.1  # FedBABU main_fed.py


@dataclass(frozen=True)
class FedBABUHyper(FineTuning):
    """Hyper-parameters of FedBABU."""

    lr_steps: bool = option(
        False,
        "a tenth of the learning rate after half of the rounds, a hundredth after three quarters",
        absent=False,
    )


@register
class FedBABU(Algorithm):
    """The common head stays at θ_0 until the end; every client receives it once.

    Source: Oh et al., ICLR 2022; jhoon-oh/FedBABU main_fed.py (with `body`/`body`) and analysis.ipynb.

    Defaults: 5 epochs of fine-tuning, body and head, as in analysis.ipynb, at the training learning rate.
    Officially that is 1e-3, what is left of it after the steps of the training: ``--set lr_steps=true``,
    ``--set ft_lr=0.001``. The paper's own sentence says the head is fine-tuned: ``--set ft_part=head``.

    Deviations: the learning rate stays constant unless asked for.

    Traps: the official code keeps the model of the round that is best on test data.
    """

    name = "fedbabu"
    title = "FedBABU"
    reference = "Oh et al., ICLR 2022; jhoon-oh/FedBABU"
    group = "fine-tuning"
    publication = (
        "FedBABU: Towards Enhanced Representation for Federated Image Classification",
        "Oh, Jaehoon and Kim, Sangmook and Yun, Se-Young",
        "ICLR",
        2022,
        "https://arxiv.org/abs/2106.06042",
    )
    pseudocode = (
        "θ_k ← SGD(θ) under the head h_0, which nobody trains",
        "θ ← mean of the θ_k",
        "after the last round, on every client: (θ_k, h_k) ← SGD(θ, h_0)",
    )
    Hyper = FedBABUHyper
    too_large = ("ft_lr",)
    tuning = ({"ft_epochs": 1}, {"ft_epochs": 10}, {"ft_part": "head"})

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: FedBABUHyper) -> None:
        check_fine_tuning(hyper)

    def shared_layers(self) -> tuple[str, ...]:
        return self.network.names[:-1]

    def personal_layers(self) -> tuple[str, ...]:
        return ()

    def message(self, clients: Sequence[int], round: int) -> Message:
        head = self.network.keys(self.network.names[-1:])
        return Message(self.server, first=select(self.task.initial, head))

    def phases(self, round: int) -> list[Phase]:
        return [Phase.of(self.shared_layers(), self.config.lr * self._step(round), self.local_work)]

    def _step(self, round: int) -> float:
        """Factor of the learning rate in a round."""
        passed = sum(round > self.task.rounds * share for share in LR_STEPS)
        return LR_FACTOR**passed if self.hyper.lr_steps else 1.0

    def adaptation(self) -> list[Phase]:
        return fine_tuning(self)

    def shared_rounds(self) -> list[SharedRounds]:
        key = "fedbabu, lr steps" if self.hyper.lr_steps else "fedbabu"
        return [SharedRounds(key, self.task.rounds)]  # every round: only the fine-tuning differs
