"""The vocabulary of local training: what a method asks for, and what comes back.

A method describes the work of a cohort as a `LocalCall`: stacked start parameters and a list of phases.
Executors differ in how they carry it out, never in what it means (`engine.sgd`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pfl_benchmark.engine.step import Draw, Objective, Rule
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import Network, Params
from pfl_benchmark.models.frozen import merged


@dataclass(frozen=True)
class Batches:
    """So many batches in place of epochs; they go on over epochs, the last of which may end early.

    A rule that takes several batches a step takes as many steps as hold them, each of full size.
    """

    count: int


@dataclass(frozen=True)
class Phase:
    """Some epochs, or some batches, of training one of the call's models.

    Attributes:
        rates: learning rate by layer name; a layer not named is frozen and its gradients are not computed.
            Tensors beside the network (`StackedModel`) are named by what stands before their first dot.
        epochs: passes over the client's training data, or `Batches`. ``Algorithm.local_work`` is what the
            protocol asks for.
        model: which of the call's models is trained.
        stream: the random stream of batch orders; phases that name the same one continue it.
        masks: optional 0/1 tensors by parameter name, common to the cohort, applied to the gradients, so
            that masked entries never move.
        collect: name of a layer whose inputs are collected at every step, before the step.
        objective: each client's loss in a step (`Step`), in place of cross-entropy.
        rule: what a step does (`Rule`), in place of a step of the run's optimiser.
        constants: tensors for objective and rule by name, common to the cohort (one model each, not stacked).
        passes: how often a step computes the gradients of its batch, or runs models on it: samples are
            counted so many times.
        uniform, normal: random numbers of a step by name, and the shape of those of one sample; objective and
            rule read them by `Step.uniform` and `Step.normal`. Each name is a stream of its own.
    """

    rates: Mapping[str, float]
    epochs: int | Batches
    model: str = "model"
    stream: str = "batches-main"
    masks: Params | None = None
    collect: str | None = None
    objective: Objective | None = None
    rule: Rule | None = None
    constants: Mapping[str, Params] = field(default_factory=dict)
    passes: int = 1
    uniform: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    normal: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @staticmethod
    def of(layers: Iterable[str], lr: float, epochs: int | Batches) -> Phase:
        """A phase that trains `layers` at one learning rate."""
        return Phase(dict.fromkeys(layers, lr), epochs)

    @property
    def draws(self) -> tuple[Draw, ...]:
        """The random numbers of a step."""
        uniform = (Draw(name, "uniform", tuple(shape)) for name, shape in self.uniform.items())
        normal = (Draw(name, "normal", tuple(shape)) for name, shape in self.normal.items())
        return (*uniform, *normal)

    @property
    def plain(self) -> bool:
        """True without objective and rule of its own: SGD on cross-entropy."""
        return self.objective is None and self.rule is None

    @property
    def batches(self) -> int:
        """Batches that a step takes."""
        return 1 if self.rule is None else self.rule.batches

    @property
    def idle(self) -> bool:
        """True if nothing is trained."""
        return not self.rates or self.epochs in (0, Batches(0))

    def steps(self, size: int, batch_size: int) -> int:
        """Steps of a client of `size` samples."""
        if isinstance(self.epochs, int):
            return self.epochs * -(-size // (batch_size * self.batches))
        return -(-self.epochs.count // self.batches)

    def samples(self, size: int, batch_size: int) -> int:
        """Samples of these steps, each counted once."""
        if isinstance(self.epochs, int):
            return self.epochs * size
        places = batch_size * self.batches
        whole, rest = divmod(self.steps(size, batch_size), -(-size // places))
        return whole * size + min(rest * places, size)

    def at(self, factor: float) -> Phase:
        """The phase with all rates multiplied by a factor."""
        return replace(self, rates={name: rate * factor for name, rate in self.rates.items()})


@dataclass
class StackedModel:
    """A network and its stacked parameters [m, ...], one row for each client.

    There may be other tensors beside the network's own, called ``NAME.REST`` with a NAME that is no layer's:
    a second head, a mixing weight. Executors hand them to objectives and rules, train them if the phase gives
    them a rate, and return them.

    Attributes:
        weights: of an ensemble that clients are evaluated with: weight of this model for each client [m];
            None stands for 1.

    Raises:
        UserError: a tensor has the name of one of the network's layers, and is none of its tensors.
    """

    network: Network
    params: Params
    weights: Tensor | None = None

    def __post_init__(self) -> None:
        layers, shapes = {*self.network.names}, self.network.shapes()
        for name, tensor in self.params.items():
            layer = name.partition(".")[0]
            if layer in layers and tensor.shape[1:] != shapes.get(name):
                raise UserError(
                    f"'{name}' has shape {tuple(tensor.shape[1:])} and is no tensor of the network's layer "
                    f"'{layer}'; expected other names for what a method has beside the network: rename the "
                    "layer, or the method's tensor"
                )

    def merged(self) -> tuple[Params, Params]:
        """Whole models, as `models.frozen.merged` has them."""
        return merged(self.network, self.params)


@dataclass
class LocalCall:
    """The local work of some clients in one round.

    Attributes:
        sample_weights: of the loss, per client [n_k], mean 1; None: ones. Weights that differ between the
            call's models are given by model name, and need not have mean 1.
        chances: per client [n_k], on the host: every epoch draws n_k samples with replacement, in proportion
            to these. None: every epoch takes each sample once.
        constants: each client's own tensors for objectives and rules, by name, stacked [m, ...].
        factor: what all rates of the phases are multiplied by; the round loop sets it (``--lr-schedule``).
    """

    round: int
    clients: list[int]
    models: dict[str, StackedModel]
    phases: list[Phase]
    sample_weights: list[Tensor] | Mapping[str, list[Tensor]] | None = None
    chances: list[Tensor] | None = None
    constants: dict[str, Params] = field(default_factory=dict)
    factor: float = 1.0

    def weights(self, model: str) -> list[Tensor] | None:
        """The sample weights of one of the call's models."""
        given = self.sample_weights
        return given[model] if isinstance(given, Mapping) else given

    def part(self, clients: slice) -> LocalCall:
        """The call for some of its clients."""
        models = {
            slot: replace(model, params={name: tensor[clients] for name, tensor in model.params.items()})
            for slot, model in self.models.items()
        }
        weights = self.sample_weights
        if isinstance(weights, Mapping):
            weights = {slot: own[clients] for slot, own in weights.items()}
        elif weights is not None:
            weights = weights[clients]
        return replace(
            self,
            clients=self.clients[clients],
            models=models,
            sample_weights=weights,
            chances=self.chances[clients] if self.chances is not None else None,
            constants={
                name: {key: tensor[clients] for key, tensor in tensors.items()}
                for name, tensors in self.constants.items()
            },
        )

    def check(self) -> None:
        """Refuse phases that cannot be carried out as they are meant.

        Raises:
            UserError: one line that says what is wrong.
        """
        if not isinstance(self.phases, list) or not all(isinstance(phase, Phase) for phase in self.phases):
            raise UserError(f"`phases` gives {self.phases!r:.60}; expected a list of `Phase`")
        for phase in self.phases:
            if (model := self.models.get(phase.model)) is None:
                raise UserError(f"a phase trains '{phase.model}'; the call's models are {[*self.models]}")
            known = dict.fromkeys([*model.network.names, *(name.partition(".")[0] for name in model.params)])
            if strange := next((name for name in phase.rates if name not in known), None):
                raise UserError(f"a phase has a rate for '{strange}'; the model has {', '.join(known)}")
            count = phase.epochs.count if isinstance(phase.epochs, Batches) else phase.epochs
            if type(count) is not int or count < 0:
                raise UserError(f"a phase has {count!r:.20} epochs; expected a number of at least 0")
            for name, rate in phase.rates.items():
                if not (math.isfinite(rate) and rate >= 0):
                    raise UserError(f"a phase trains '{name}' at rate {rate!r:.20}; expected at least 0")


@dataclass
class LocalResult:
    """What local training returned, clients in the order of the call.

    Attributes:
        models: trained parameters by model name, stacked [m, ...].
        loss: mean training loss (the phase's objective) of each client over the call's last epoch (as far
            as it went) [m]; 0 if nothing was trained.
        samples, steps: samples processed and SGD steps taken, over all clients.
        features: per client, inputs of the collected layer [N, d] and their labels [N], if asked for.
        found: stacked tensors [m, ...] that the method's `upload` computes and its `keep` needs.
    """

    round: int
    clients: list[int]
    models: dict[str, Params]
    loss: Tensor
    samples: int
    steps: int
    features: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    found: Params = field(default_factory=dict)

    @staticmethod
    def join(parts: Sequence[LocalResult]) -> LocalResult:
        """The outcomes of parts of a call, one after the other, as one."""
        models = {
            slot: {name: torch.cat([part.models[slot][name] for part in parts]) for name in tensors}
            for slot, tensors in parts[0].models.items()
        }
        return LocalResult(
            round=parts[0].round,
            clients=[client for part in parts for client in part.clients],
            models=models,
            loss=torch.cat([part.loss for part in parts]),
            samples=sum(part.samples for part in parts),
            steps=sum(part.steps for part in parts),
            features=[own for part in parts for own in part.features],
        )
