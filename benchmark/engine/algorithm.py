"""`Algorithm`: what a method may decide. Everything else is the engine's.

A decoupling method overrides `shared_layers` and perhaps `phases`; that is about twenty lines. The base
class by itself is FedAvg.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from pfl_benchmark.config.lr_schedule import lr_schedule
from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.clients import ClientStore
from pfl_benchmark.engine.data import FederatedData, Part
from pfl_benchmark.engine.ensemble import as_logits, ensemble_scores
from pfl_benchmark.engine.executors import Executor
from pfl_benchmark.engine.ledger import Ledger, Meter
from pfl_benchmark.engine.local import Batches, LocalCall, LocalResult, Phase, StackedModel
from pfl_benchmark.engine.message import Aggregator, Message, WeightedMean
from pfl_benchmark.engine.params import clone, expand, select
from pfl_benchmark.engine.schedule import Schedule
from pfl_benchmark.engine.streams import Streams
from pfl_benchmark.errors import NotDefined, UserError
from pfl_benchmark.models import Network, Params


@dataclass(frozen=True)
class NoHyper:
    """A method without hyper-parameters of its own."""


@dataclass(frozen=True)
class RunContext:
    """What a method gets to see of a run.

    Attributes:
        schedule: who takes part in which round.
        rounds: rounds of this run (under a budget of bytes or samples not the configured number).
        initial: θ_0, common to the server and all clients of a seed.
        executor: carries out forward passes on clients' data; which one it is makes no difference.
    """

    config: RunConfig
    network: Network
    data: FederatedData
    streams: Streams
    schedule: Schedule
    rounds: int
    initial: Params
    executor: Executor


@dataclass(frozen=True)
class RoundKind:
    """What a round is within a run.

    Attributes:
        stage: number of its stage, from 1.
        closing: after it everyone receives `Algorithm.closing`.
        full_participation: everyone takes part, not only the round's cohort; not in the last round under
            ``--last-round cohort``.
    """

    stage: int = 1
    closing: bool = False
    full_participation: bool = False


@dataclass(frozen=True)
class SharedRounds:
    """A common beginning: rounds 1 to `round` are the same for all runs that name the same `key`.

    The engine trains them once per seed and protocol; records and bytes still charge them to each run.

    Attributes:
        whole: a run takes over all of the method's `state`, not only what the server holds.
    """

    key: str
    round: int
    whole: bool = False


class Algorithm:
    """Base of all methods, by itself FedAvg (McMahan et al., 2017).

    A subclass sets the class attributes and overrides the hooks it needs. The engine calls, in each round,

    * once: `start_round`, `message`, `aggregator`;
    * once for each *chunk* of the participants (20 at most, in the order of the cohort): `begin`, (local
      training), `upload`, `keep`;
    * once: `aggregate`, `closing` (if the round closes a stage), `finish_round`.

    In evaluations it calls `members` and `scores`, once for each chunk of the clients. Results may not depend
    on the chunks: what concerns the whole cohort belongs into the hooks that are called once. Before the run
    a copy of the method goes through one participation of each kind of round without training (`engine.dry`):
    that is where budgets get their bytes and samples from.

    All tensors are on ``task.data.device``; *stacked* ones have a leading client axis [m, ...], in the order
    of `clients`. A hook may keep what it is given and return what it holds, but must not change in place what
    it was given (messages, outcomes' models) or has sent. The engine checks that, and what hooks return
    (`engine.hooks`).

    Attributes:
        server: what the server holds and sends, by tensor name.
        clients: what clients keep between their participations.
        meter: is charged for passes over data outside of the phases.
    """

    name: ClassVar[str]
    title: ClassVar[str]  # as tables print it
    reference: ClassVar[str]  # publication and, where it exists, official code
    # For readers; none of these counts as code of a run (`records.sources`).
    group: ClassVar[str] = ""  # one of `experiment.card.GROUPS`
    publication: ClassVar[tuple[str, str, str, int, str] | None] = None  # title, authors, venue, year, link
    pseudocode: ClassVar[tuple[str, ...]] = ()  # the update, in about three lines
    aliases: ClassVar[tuple[str, ...]] = ()  # other names that people know it by, beside name and title
    Hyper: ClassVar[type] = NoHyper
    ablations: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # name -> hyper-parameters it sets
    # What the tuning study tries beside the default and other learning rates: at most six points.
    tuning: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    aggregation: ClassVar[Literal["uniform", "samples"]] = "uniform"  # weights of the server's mean
    ensemble_space: str = "logit"  # what the members of an ensemble are summed in (`ensemble.SPACES`)
    evaluated: Literal["", "global", "personal"] = (
        ""  # what is evaluated; empty: personal if clients keep any
    )
    least_rounds: int = 1  # the smallest number of rounds that the method can be run for
    too_large: ClassVar[tuple[str, ...]] = ()  # hyper-parameters that, too large, make a run diverge
    notes: Sequence[str] = ()  # lines worth telling before the run starts

    # What a method is, where it is not what most are. Executors and the tests over the registry read it.
    images_only: ClassVar[bool] = False  # it is not defined for text
    needs_bias: ClassVar[bool] = False  # it reads or sets the bias of the last layer
    needs_adapters: ClassVar[str] = ""  # the kind of --adapters without which it is not defined
    # Options of local training (`TRAINING`) that it does not take, and why: its own step has no use for them.
    refuses: ClassVar[Mapping[str, str]] = {}
    no_newcomers: ClassVar[str] = ""  # why a client cannot begin after the training; empty: it can (`admit`)
    not_stackable: ClassVar[str] = (
        ""  # why its steps cannot be computed for several clients at once; empty: they can
    )
    averages: ClassVar[bool] = True  # equal uploads of what was sent leave the server as it was
    keeps_trained: ClassVar[bool] = True  # what clients keep is what they trained, or `LocalResult.found`
    learns_little: ClassVar[bool] = False  # a few rounds need not bring it far beyond guessing

    def __init__(self, task: RunContext, hyper: Any) -> None:
        self.task, self.hyper = task, hyper
        self.config, self.network = task.config, task.network
        for layer in (*self.shared_layers(), *self.personal_layers()):
            if layer not in self.network.names:
                raise UserError(
                    f"'{self.name}' shares or keeps a layer '{layer}'; expected a tuple of some of: "
                    f"{', '.join(self.network.names)}"
                )
        self.server: Params = clone(select(task.initial, self.shared_tensors()))
        self.clients = ClientStore(select(task.initial, self._personal_tensors()), task.data.clients)
        self.meter = Meter()

    # -- what differs between decoupling methods ------------------------------------------------

    def shared_layers(self) -> tuple[str, ...]:
        """Layers that are sent, averaged and sent back."""
        return self.network.names

    def personal_layers(self) -> tuple[str, ...]:
        """Layers that each client keeps. Layers neither shared nor personal stay at θ_0."""
        return tuple(name for name in self.network.names if name not in self.shared_layers())

    def shared_tensors(self) -> list[str]:
        """Names of what is shared: by default all tensors of the shared layers."""
        return self.network.keys(self.shared_layers())

    def _personal_tensors(self) -> list[str]:
        """Names of what each client keeps: of personal layers all, of shared ones what is not shared."""
        shared = {*self.shared_tensors()}
        layers = (*self.shared_layers(), *self.personal_layers())
        return [name for name in self.network.keys(layers) if name not in shared]

    def phases(self, round: int) -> list[Phase]:
        """The local training of a participation; the round loop multiplies all rates by `rate_factor`."""
        return [Phase.of(self.network.names, self.config.lr, self.local_work)]

    def adaptation(self) -> list[Phase]:
        """Training on copies of the final model before it is evaluated; nothing of it is sent."""
        return []

    # -- the hooks of the round loop ------------------------------------------------------------

    def start_round(self, round: int) -> None:
        """Before the server sends anything; a staged method prepares its next stage here."""

    def message(self, clients: Sequence[int], round: int) -> Message:
        """What the server sends to the participants of a round; bytes are counted from it.

        By default what it holds, to all alike. In its first round of a stage a client receives its personal
        layers at θ_0, too (nothing in methods without a server: their clients begin by themselves).
        """
        first = select(self.task.initial, self._personal_tensors()) if self.server else {}
        return Message(self.server, first=first)

    def begin(self, clients: Sequence[int], message: Message, round: int) -> LocalCall:
        """The local work of some participants that have received `message`.

        By default the network's layers, as received alone, received in common, kept, or else at θ_0.
        """
        params = self.assemble(clients, message.common)
        params.update({name: tensor for name, tensor in message.per_client.items() if name in params})
        return LocalCall(
            round, list(clients), {"model": StackedModel(self.network, params)}, self.phases(round)
        )

    def upload(self, outcome: LocalResult) -> Params:
        """What the participants send, stacked [m, ...]; bytes are counted from it.

        The same number of tensors [m, ...] for every chunk, each of them of one client along the first axis.
        What `keep` needs of what is computed here goes into ``outcome.found``.
        """
        return select(outcome.models["model"], self.server)

    def keep(self, outcome: LocalResult) -> None:
        """What the participants keep."""
        self.clients.scatter(outcome.clients, outcome.models["model"])

    def aggregator(self) -> Aggregator:
        """What makes one of a round's uploads; by default their mean (weights: `aggregation`)."""
        return WeightedMean()

    def aggregate(self, mean: Params) -> None:
        """Take over what the aggregator has made of the uploads: by default a mean, the new server."""
        self.server.update(mean)

    def closing(self, clients: Sequence[int]) -> Message:
        """What everyone receives after a round that closes a stage: what `members` needs of the server.

        By default what it holds.
        """
        return Message(self.server)

    def finish_round(self, round: int) -> None:
        """After aggregation; a staged method closes its stage here."""

    # -- clients that took no part in training ---------------------------------------------------

    def admit(self, clients: Sequence[int], epochs: int, ledger: Ledger) -> None:
        """Let new clients begin, after the last round; they send nothing, and are evaluated afterwards.

        By default they do what a client that has not taken part does in a round: the first phase of the round
        that trains what clients keep, for `epochs` epochs, everything else frozen. Without such a phase, and
        under `adaptation` (which is cut to `epochs` epochs), they only receive what `members` needs.

        Args:
            epochs: at most so many for each client, whatever the method.
            ledger: is charged for what they receive and compute.
        """
        first = self.message(clients, self.task.rounds + 1).first
        ledger.charge_message(Message(first), len(clients))
        phase = None if self.adaptation() else self._personal_phase(self.task.rounds + 1, epochs)
        if phase is None:
            ledger.charge_message(self.closing(clients), len(clients))
        else:
            take_part(self, clients, [phase], ledger)

    def _personal_phase(self, round: int, epochs: int) -> Phase | None:
        """The first phase of a round that trains what clients keep, without the rest; None: there is none."""
        kept = self.clients.initial.keys() - self.server.keys()
        groups = {name.split(".")[0] for name in kept}
        for phase in self.phases(round):
            if not groups & phase.rates.keys():
                continue
            frozen = dict.fromkeys(phase.rates, 0.0) if phase.rule else {}  # rules ask for all rates
            rates = frozen | {name: rate for name, rate in phase.rates.items() if name in groups}
            parts = [name for name in self.network.keys(groups & {*self.network.names}) if name not in kept]
            masks = {name: torch.zeros_like(self.task.initial[name]) for name in parts}
            return replace(phase, rates=rates, epochs=epochs, masks={**(phase.masks or {}), **masks} or None)
        return None

    # -- what the engine asks about the run -----------------------------------------------------

    def kind(self, round: int) -> RoundKind:
        """What a round is: by default the last one closes the only stage, with everyone (`--last-round`)."""
        last = round == self.task.rounds
        return RoundKind(1, last, last and self.config.everyone_ends)

    def capacities(self) -> list[tuple[int, int]]:
        """Parameters that are (shared, personal) in each stage's network."""
        shapes = self.network.shapes()
        shared, personal = (
            sum(math.prod(shapes[name]) for name in names)
            for names in (self.shared_tensors(), self._personal_tensors())
        )
        return [(shared, personal)]

    def shared_rounds(self) -> list[SharedRounds]:
        """Beginnings that this run may share with others, shortest first."""
        return []

    def members(self, clients: Sequence[int]) -> list[StackedModel]:
        """The model(s) that `clients` are evaluated with, after the last aggregate has reached them.

        With `adaptation` there is one member, and clients are evaluated with its adapted copy.
        """
        return [StackedModel(self.network, self.assemble(clients, self.server))]

    def shared_model(self) -> Params | None:
        """The one model that all clients have in common, not stacked; None where there is no such.

        By default the network as the server holds it, with what is neither shared nor personal at θ_0. It is
        evaluated after the last round beside the clients' own models.
        """
        names, shared = self.network.shapes(), self.shared_tensors()
        if self._personal_tensors() or not shared or not {*shared} <= self.server.keys():
            return None
        common = {**self.task.initial, **self.server}
        return {name: common[name] for name in names if name in common}

    def scores(self, members: Sequence[StackedModel], clients: Sequence[int], part: Part) -> list[Tensor]:
        """Logits (or their like) of the clients' samples, per client [n, C].

        The largest is the prediction, and their cross-entropy is the loss. By default the weighted sum of the
        members' logits (`ensemble_space`).

        Args:
            members: what `members` has returned, or its adapted copy.
        """
        # Of a single model all spaces are the same.
        space = self.ensemble_space if len(members) > 1 else "logit"
        scores = ensemble_scores(self.task.executor, members, clients, part, space)
        return [as_logits(own, space) for own in scores]

    def diagnostics(self) -> dict[str, Any]:
        """What the method wants to have on record at the end, as JSON values."""
        return {}

    @property
    def remedies(self) -> list[str]:
        """What may help a run that diverges, as it is typed."""
        return smaller(type(self), self.hyper)

    @classmethod
    def check(cls, config: RunConfig, network: Network, hyper: Any) -> None:
        """Refuse hyper-parameters that make no sense together with the configuration; by default none.

        Raises:
            UserError: says what was wrong and what was expected.
            NotDefined: the method is not defined for such data.
        """
        if cls.images_only and network.is_recurrent:
            raise NotDefined(
                f"'{cls.name}' is not defined for text, and '{config.dataset}' is a text dataset; "
                "expected an image dataset such as cifar10: choose another --dataset or another --algo"
            )
        if cls.needs_bias and f"{network.names[-1]}.bias" not in network.shapes():
            raise UserError(
                f"'{cls.name}' uses the bias of the last layer, and '{network.names[-1]}' of --network "
                f"{config.network} has none; give it one, or choose another --algo or --network"
            )

    @classmethod
    def network_for(cls, network: Network, config: RunConfig, hyper: Any) -> Network:
        """The network of a run, given the one that it asks for; a method may add or replace layers.

        It is what `check` and executors get to see before the first round. Buffers of layers (statistics of
        batch normalisation) are sent, averaged and kept like parameters (`shared_tensors`).
        """
        return network

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

    # -- helpers --------------------------------------------------------------------------------

    @property
    def local_work(self) -> int | Batches:
        """How long a participation trains: --local-epochs, or --local-steps in place of them."""
        steps = self.config.local_steps
        return Batches(steps) if steps else self.config.local_epochs

    def rate_factor(self, round: int) -> float:
        """What --lr-schedule multiplies the rates of a round's phases by."""
        return lr_schedule(self.config.lr_schedule).factor(round, self.task.rounds)

    def local_samples(self, client: int) -> int:
        """Samples of `local_work`, in a step of one batch."""
        phase = Phase({}, self.local_work)
        return phase.samples(self.task.data.train_sizes[client], self.config.batch_size)

    def local_steps(self, client: int) -> int:
        """Steps of `local_work`, of one batch each."""
        return Phase({}, self.local_work).steps(self.task.data.train_sizes[client], self.config.batch_size)

    def assemble(self, clients: Sequence[int], message: Params) -> Params:
        """Whole models of `clients`, stacked: received, kept, or else still at θ_0.

        Args:
            message: what they received in common, or what the server holds.
        """
        kept = self.clients.gather(clients)
        common = expand({**self.task.initial, **message}, len(clients))
        return {name: kept[name] if name in kept else common[name] for name in self.network.shapes()}


def take_part(algorithm: Algorithm, clients: Sequence[int], phases: list[Phase], ledger: Ledger) -> None:
    """Let new clients take part in a round after the last one with other phases, and send nothing."""
    after = algorithm.task.rounds + 1
    message = algorithm.message(clients, after)
    ledger.charge_message(message, len(clients))
    outcome = algorithm.task.executor.train(replace(algorithm.begin(clients, message, after), phases=phases))
    ledger.charge_training(outcome)
    algorithm.keep(outcome)


def smaller(method: type[Algorithm], hyper: Any) -> list[str]:
    """What had better be smaller in a run that diverges, as it is typed.

    Hyper-parameters above their defaults come before the learning rate, the others after it.
    """
    usual = {spec.name: spec.default for spec in fields(hyper)}
    used = [name for name in method.too_large if name in usual and getattr(hyper, name) > 0]
    raised = [name for name in used if getattr(hyper, name) > usual[name]]
    others = [name for name in used if name not in raised]
    names = [*(f"set {name}" for name in raised), "lr", *(f"set {name}" for name in others)]
    return [f"a smaller --{name}" for name in names]
