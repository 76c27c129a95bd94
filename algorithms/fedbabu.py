"""FedBABU: the body is trained under a head that nobody trains, then everyone fine-tunes."""

from __future__ import annotations

from algorithms.adaptation import FineTuning, fine_tuning
from algorithms.registry import register
from benchmark.engine.algorithm import Algorithm, Trunk
from benchmark.engine.local import Phase

__all__ = ["FedBABU"]


@register
class FedBABU(Algorithm):
    """The common head stays at θ_0 until the end; it follows from the seed and is never sent.

    Source: Oh et al., ICLR 2022; jhoon-oh/FedBABU (main_fed.py with `body`/`body`). Fine-tuning as in its
    analysis.ipynb: 5 epochs, body and head, at the training learning rate. The paper's own sentence says
    the head is fine-tuned: ``--set ft_part=head``.
    """

    name = "fedbabu"
    title = "FedBABU"
    reference = "Oh et al., ICLR 2022; jhoon-oh/FedBABU"
    Hyper = FineTuning
    tuning = ({"ft_epochs": 1}, {"ft_epochs": 10}, {"ft_part": "head"})

    def shared_layers(self) -> tuple[str, ...]:
        return self.network.names[:-1]

    def personal_layers(self) -> tuple[str, ...]:
        return ()

    def phases(self, round: int) -> list[Phase]:
        return [Phase.of(self.shared_layers(), self.config.lr, self.config.local_epochs)]

    def adaptation(self) -> list[Phase]:
        return fine_tuning(self)

    def trunks(self) -> list[Trunk]:
        return [Trunk("fedbabu", self.task.rounds)]  # every round: only the fine-tuning differs
