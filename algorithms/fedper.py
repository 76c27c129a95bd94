"""FedPer: shared body, personal head, trained jointly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pfl_benchmark.algorithms.decoupled import Decoupled, DecoupledHyper, check_start
from pfl_benchmark.method import LocalResult, Network, Params, Phase, RunConfig, UserError, option, register

FROZEN_EPOCHS = 10  # least epochs of FedRep's extra last round


@dataclass(frozen=True)
class FedPerHyper(DecoupledHyper):
    """Hyper-parameters of methods that split the network into a shared body and a personal head."""

    n_personal: int = option(
        1,
        "number of last layers that are personal",
        least=0,
        search=(1, 2, 3),
    )
    final_round: str = option(
        "standard",
        "the last round: an ordinary one, or FedRep's extra one with the body frozen and nothing averaged",
        choices=("standard", "frozen"),
    )
    ft_epochs: int = option(
        0,
        "epochs of fine-tuning a copy of the whole model before it is evaluated; none in the publications",
        least=0,
        absent=0,
    )


@register
class FedPer(Decoupled):
    """Body averaged, head kept; both trained together in each local call.

    Source: Arivazhagan et al., 2019, Algorithm 1; there is no official code, FedRep main_fedrep.py
    (`fedper`).

    Defaults: the last layer is personal, as in main_fedrep.py.

    Deviations: clients are evaluated with the *last aggregate* and their head, not with their own body. The
    mean is unweighted by default.
    """

    name = "fedper"
    title = "FedPer"
    reference = "Arivazhagan et al., arXiv 1912.00818; FedRep main_fedrep.py"
    group = "decoupled"
    publication = (
        "Federated Learning with Personalization Layers",
        "Arivazhagan, Manoj Ghuhan and Aggarwal, Vinay and Singh, Aaditya Kumar and Choudhary, Sunav",
        "arXiv 1912.00818",
        2019,
        "https://arxiv.org/abs/1912.00818",
    )
    pseudocode = (
        "send the body θ",
        "(θ_k, h_k) ← SGD(θ, h_k) on client k",
        "θ ← mean of the θ_k, the head h_k stays",
    )
    Hyper = FedPerHyper
    tuning: ClassVar[tuple[Mapping[str, Any], ...]] = ({"n_personal": 2}, {"n_personal": 3})

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: FedPerHyper) -> None:
        if hyper.n_personal > len(network.names):
            raise UserError(
                f"n_personal={hyper.n_personal}: the network has {len(network.names)} layers "
                f"({', '.join(network.names)}); give at most that"
            )
        if hyper.final_round == "frozen" and not config.everyone_ends:
            raise UserError(
                "final_round=frozen: the last round trains everyone's head, and --last-round is cohort; drop "
                "one of the two"
            )
        shared = hyper.n_personal < len(network.names)
        check_start(hyper, f"n_personal={hyper.n_personal}", shared, hyper.n_personal > 0)

    def shared_layers(self) -> tuple[str, ...]:
        return self.network.names[: len(self.network.names) - self.hyper.n_personal]

    def phases(self, round: int) -> list[Phase]:
        if self._frozen(round):
            return [Phase.of(self.personal_layers(), self.config.lr, self._frozen_epochs())]
        return self.joint_phases(round)

    def joint_phases(self, round: int) -> list[Phase]:
        """Local training of an ordinary round."""
        return super().phases(round)

    def adaptation(self) -> list[Phase]:
        epochs = self.hyper.ft_epochs
        return [Phase.of(self.network.names, self.config.lr, epochs)] if epochs else []

    def upload(self, outcome: LocalResult) -> Params:
        return {} if self._frozen(outcome.round) else super().upload(outcome)

    def _frozen(self, round: int) -> bool:
        return self.hyper.final_round == "frozen" and round == self.task.rounds

    def _frozen_epochs(self) -> int:
        return max(FROZEN_EPOCHS, self.config.local_epochs)
