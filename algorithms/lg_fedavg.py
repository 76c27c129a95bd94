"""LG-FedAvg: personal lower layers, shared upper layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pfl_benchmark.algorithms.decoupled import Decoupled, DecoupledHyper, check_start
from pfl_benchmark.method import (
    ClientStore,
    Message,
    Network,
    RoundKind,
    RunConfig,
    RunContext,
    SharedRounds,
    UserError,
    option,
    register,
    select,
)


@dataclass(frozen=True)
class LGHyper(DecoupledHyper):
    """Hyper-parameters of LG-FedAvg."""

    lg_shared: int = option(
        2,
        "number of last layers that are shared (2: fc2 and fc3)",
        least=0,
        search=(1, 2, 3),
    )
    lg_warm: int = option(
        0, "rounds of FedAvg, ended as --last-round says, from which all start; 0: from θ_0", least=0
    )


@register
class LGFedAvg(Decoupled):
    """The reverse of FedPer: clients keep the representation and average the upper layers.

    Source: Liang et al., 2020; pliang279/LG-FedAvg main_lg.py, FedRep main_fedrep.py (`lg`).

    Defaults: fc2 and fc3 are shared, as in main_fedrep.py, from a cold start, which the paper's row fits.
    Officially all start from a long-trained FedAvg model: ``lg_warm``.

    Deviations: the last models count.

    Traps: the official code keeps, for each client, its model of the round that is best on its test data.
    """

    name = "lg-fedavg"
    title = "LG-FedAvg"
    reference = "Liang et al., arXiv 2001.01523; pliang279/LG-FedAvg, FedRep main_fedrep.py"
    group = "decoupled"
    publication = (
        "Think Locally, Act Globally: Federated Learning with Local and Global Representations",
        "Liang, Paul Pu and Liu, Terrance and Ziyin, Liu and Allen, Nicholas B. and Auerbach, Randy "
        "P. and Brent, David and Salakhutdinov, Ruslan and Morency, Louis-Philippe",
        "arXiv 2001.01523",
        2020,
        "https://arxiv.org/abs/2001.01523",
    )
    pseudocode = (
        "send the upper layers u",
        "(θ_k, u_k) ← SGD(θ_k, u) on client k",
        "u ← mean of the u_k, the lower layers θ_k stay",
    )
    Hyper = LGHyper
    tuning = ({"lg_shared": 1}, {"lg_warm": 10}, {"lg_warm": 20})

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: LGHyper) -> None:
        if hyper.lg_shared > len(network.names):
            raise UserError(
                f"lg_shared={hyper.lg_shared}: the network has {len(network.names)} layers; give at most that"
            )
        if hyper.lg_warm >= config.rounds:
            raise UserError(f"lg_warm={hyper.lg_warm}: expected fewer than --rounds {config.rounds}")
        personal = hyper.lg_shared < len(network.names)
        check_start(hyper, f"lg_shared={hyper.lg_shared}", hyper.lg_shared > 0, personal)

    def __init__(self, task: RunContext, hyper: LGHyper) -> None:
        self._warm = hyper.lg_warm > 0
        super().__init__(task, hyper)

    def shared_layers(self) -> tuple[str, ...]:
        return self.network.names if self._warm else self.network.tail(self.hyper.lg_shared)

    def message(self, clients: Sequence[int], round: int) -> Message:
        # After the warm rounds everyone has the lower layers from their closing message.
        started = self.hyper.lg_warm and not self._averaging
        return Message(self.server) if started else super().message(clients, round)

    def kind(self, round: int) -> RoundKind:
        # Everyone needs the warm model's lower layers: the warm rounds end as a FedAvg run does.
        closing = round in (self.hyper.lg_warm, self.task.rounds)
        full = closing and self.config.everyone_ends
        return RoundKind(2 if 0 < self.hyper.lg_warm < round else 1, closing, full)

    def shared_rounds(self) -> list[SharedRounds]:
        return [SharedRounds("fedavg", self.hyper.lg_warm)] if self.hyper.lg_warm else []

    def start_round(self, round: int) -> None:
        if self._warm and round > self.hyper.lg_warm:
            self._warm = False
            lower = select(self.server, self.network.keys(self.personal_layers()))
            self.clients = ClientStore(lower, self.task.data.clients)
            self.server = select(self.server, self.network.keys(self.shared_layers()))

    def state(self) -> dict[str, Any]:
        return {**super().state(), "warm": self._warm}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self._warm = state["warm"]
