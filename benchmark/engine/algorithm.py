"""`Algorithm`: what a method may decide. Everything else is the engine's.

A decoupling method overrides `shared_layers` and perhaps `phases`; that is about twenty lines. The base
class by itself is FedAvg.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from benchmark.engine.clients import ClientStore
from benchmark.engine.config import RunConfig
from benchmark.engine.data import FederatedData
from benchmark.engine.executors import Executor
from benchmark.engine.local import LocalCall, LocalModel, Outcome, Phase
from benchmark.engine.params import clone, expand, nbytes, select
from benchmark.engine.streams import Streams
from benchmark.models import Network, Params

__all__ = ["Algorithm", "Member", "NoHyper", "Task", "Traffic", "Trunk"]


@dataclass(frozen=True)
class NoHyper:
    """A method without hyper-parameters of its own."""


@dataclass(frozen=True)
class Task:
    """What a method gets to see of a run.

    Attributes:
        rounds: rounds of this run (under a byte budget not the configured number).
        initial: θ_0, common to the server and all clients of a seed.
        executor: carries out forward passes on clients' data; which one it is makes no difference.
    """

    config: RunConfig
    network: Network
    data: FederatedData
    streams: Streams
    rounds: int
    initial: Params
    executor: Executor


@dataclass(frozen=True)
class Member:
    """One weighted member of the model that clients are evaluated with (most methods have one).

    Attributes:
        params: stacked parameters [m, ...].
        weights: weight of this member for each client [m]; None stands for 1.
    """

    network: Network
    params: Params
    weights: Tensor | None = None


@dataclass(frozen=True)
class Traffic:
    """Bytes of one client's participation in a round.

    Attributes:
        first: received besides when the client takes part for the first time in the round's stage.
        closing: received after the round if it closes a stage; None: as much as `down`.
    """

    down: int
    up: int
    first: int = 0
    closing: int | None = None


@dataclass(frozen=True)
class Trunk:
    """A common beginning: rounds 1 to `round` are the same for all runs that name the same `key`.

    The engine runs them once per seed and protocol; records and bytes still charge them to each.
    """

    key: str
    round: int


class Algorithm:
    """Base of all methods, by itself FedAvg (McMahan et al., 2017).

    A subclass sets the class attributes and overrides the hooks it needs. The engine calls, in each round:
    `start_round`, `download`, `first_download`, `begin`, (local training), `upload`, `keep`, `aggregate`,
    `broadcast` (if the round closes a stage), `finish_round`.

    Attributes:
        server: what the server holds and sends, by tensor name.
        clients: what clients keep between their participations.
    """

    name: ClassVar[str]
    title: ClassVar[str]  # as tables print it
    reference: ClassVar[str]  # publication and, where it exists, official code
    Hyper: ClassVar[type] = NoHyper
    ablations: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # name -> hyper-parameters it sets
    # What the tuning study tries beside the default and other learning rates: at most six points.
    tuning: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    aggregation: ClassVar[Literal["uniform", "samples"]] = "uniform"  # weights of the server's mean
    ensemble_space: str = "logit"  # what the members of an ensemble are summed in (`evaluate.SPACES`)

    def __init__(self, task: Task, hyper: Any) -> None:
        self.task, self.hyper = task, hyper
        self.config, self.network = task.config, task.network
        self.server: Params = clone(select(task.initial, self.network.keys(self.shared_layers())))
        personal = select(task.initial, self.network.keys(self.personal_layers()))
        self.clients = ClientStore(personal, task.data.clients)

    # -- what differs between decoupling methods ------------------------------------------------

    def shared_layers(self) -> tuple[str, ...]:
        """Layers that are sent, averaged and sent back."""
        return self.network.names

    def personal_layers(self) -> tuple[str, ...]:
        """Layers that each client keeps. Layers neither shared nor personal stay at θ_0."""
        return tuple(name for name in self.network.names if name not in self.shared_layers())

    def phases(self, round: int) -> list[Phase]:
        """The local training of a participation."""
        return [Phase.of(self.network.names, self.config.lr, self.config.local_epochs)]

    def adaptation(self) -> list[Phase]:
        """Training on copies of the final model before it is evaluated; nothing of it is sent."""
        return []

    # -- the hooks of the round loop ------------------------------------------------------------

    def start_round(self, round: int) -> None:
        """Before the server sends anything; a staged method prepares its next stage here."""

    def download(self) -> Params:
        """What the server sends to every participant."""
        return self.server

    def first_download(self) -> Params:
        """What a participant receives besides in its first round of a stage: its personal layers at θ_0.

        Nothing in methods without a server: their clients begin by themselves.
        """
        return select(self.task.initial, self.network.keys(self.personal_layers())) if self.server else {}

    def begin(self, clients: Sequence[int], message: Params, round: int) -> LocalCall:
        """The local work of some participants that have received `message`."""
        model = LocalModel(self.network, self.assemble(clients, message))
        return LocalCall(round, list(clients), {"model": model}, self.phases(round))

    def upload(self, outcome: Outcome) -> Params:
        """What the participants send, stacked [m, ...]."""
        return select(outcome.models["model"], self.server)

    def keep(self, outcome: Outcome) -> None:
        """What the participants keep."""
        self.clients.scatter(outcome.clients, outcome.models["model"])

    def aggregate(self, mean: Params) -> None:
        """Take over the weighted mean of the uploads."""
        self.server.update(mean)

    def broadcast(self) -> Params:
        """What everyone receives after a round that closes a stage: what `members` needs of the server."""
        return self.download()

    def finish_round(self, round: int) -> None:
        """After aggregation; a staged method closes its stage here."""

    # -- what the engine asks about the run -----------------------------------------------------

    def stage(self, round: int) -> int:
        """Number of the stage that a round belongs to, from 1."""
        return 1

    def closes_stage(self, round: int) -> bool:
        """True in rounds after which the server's part goes to everyone."""
        return round == self.task.rounds

    def takes_everyone(self, round: int) -> bool:
        """True in rounds in which everyone takes part, not only the round's cohort."""
        return self.closes_stage(round)

    @property
    def least_rounds(self) -> int:
        """The smallest number of rounds that this method can be run for."""
        return 1

    def capacities(self) -> list[tuple[int, int]]:
        """Parameters of the (shared, personal) layers of each stage's network."""
        shared = self.network.count(self.shared_layers())
        return [(shared, self.network.count(self.personal_layers()))]

    def trunks(self) -> list[Trunk]:
        """Beginnings that this run may share with others, shortest first."""
        return []

    def traffic(self, round: int) -> Traffic:
        """Bytes of one participation, known in advance: what a byte budget is planned with."""
        size = nbytes(self.server)
        return Traffic(size, size, nbytes(self.first_download()))

    def weights(self, clients: Sequence[int]) -> Tensor:
        """Weights of the participants in the server's mean [m]."""
        rule = self.aggregation if self.config.aggregation == "method" else self.config.aggregation
        sizes = self.task.data.train_sizes
        return torch.tensor([sizes[client] if rule == "samples" else 1 for client in clients])

    def members(self, clients: Sequence[int]) -> list[Member]:
        """The model(s) that `clients` are evaluated with, after the last aggregate has reached them."""
        return [Member(self.network, self.assemble(clients, self.download()))]

    def notes(self) -> list[str]:
        """Lines worth telling before the run starts."""
        return []

    def remedies(self) -> list[str]:
        """What may help a run that diverges, as it is typed; said where training ends so."""
        return ["a smaller --lr"]

    def diagnostics(self) -> dict[str, Any]:
        """What the method wants to have on record at the end, as JSON values."""
        return {}

    def evaluated(self, adapted: bool) -> Literal["global", "personal"]:
        """Whether `members` (or their adapted copies) differ from client to client."""
        return "personal" if adapted or self.clients.initial else "global"

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: Any) -> None:
        """Refuse hyper-parameters that make no sense together with the configuration.

        Raises:
            UserError: says what was wrong and what was expected.
        """

    @classmethod
    def fitted(cls, network: Network, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The hyper-parameters that a default (no `values`) or an ablation sets, as they are for a network.

        What a person sets comes after that.
        """
        return values

    # -- resume ---------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that a later round depends on."""
        return {"server": self.server, "clients": self.clients.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self.server = dict(state["server"])
        self.clients.load(state["clients"])

    def trunk_state(self, trunk: Trunk) -> dict[str, Any]:
        """The state after the trunk's last round, not closed yet, that all which share it can take over."""
        return {"server": self.server}

    def load_trunk(self, trunk: Trunk, state: Mapping[str, Any]) -> None:
        """Take over what `trunk_state` of another run returned."""
        self.server = dict(state["server"])

    # -- helpers --------------------------------------------------------------------------------

    def assemble(self, clients: Sequence[int], message: Params) -> Params:
        """Whole models of `clients`, stacked: received, kept, or else still at θ_0."""
        kept = self.clients.gather(clients)
        common = expand({**self.task.initial, **message}, len(clients))
        return {name: kept[name] if name in kept else common[name] for name in self.network.shapes()}
