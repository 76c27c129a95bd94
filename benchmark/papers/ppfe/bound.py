"""The terms of the paper's generalisation bound for the architectures that methods really have.

Theorem "Generalization Bound of Algorithm 1" (paper, appendix, main results): with probability 1 − ζ the
generalisation gap is at most ::

    B·sqrt(log(2/ζ) / (2 K n)) + B·sqrt(log(K n) / n) · Õ[T + Σ_t (shared_t/K + personal_t)]^(1/2)

with K clients, n the harmonic mean of their training samples, T stages, and the parameters of the shared and
personal layers of stage t. Õ hides constants and logarithms, so here both B and the hidden factor are 1: the
values are no bounds, and only their ratios between architectures mean something.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.engine.algorithm import Algorithm
from pfl_benchmark.errors import UserError
from pfl_benchmark.experiment.prepare import split_of
from pfl_benchmark.studies.dry_run import dry_run


@dataclass(frozen=True)
class Sizes:
    """Training samples of every client.

    Attributes:
        train: per client [K].
        source: where they come from, as the end of a sentence.
    """

    train: tuple[int, ...]
    source: str


@dataclass(frozen=True)
class Bound:
    """The bound's terms for one architecture.

    Attributes:
        stages: parameters of the (shared, personal) layers of each stage.
        clients: K.
        samples: n, the harmonic mean of the clients' training samples.
        zeta: ζ, the probability that the bound may fail with.
    """

    stages: tuple[tuple[int, int], ...]
    clients: int
    samples: float
    zeta: float

    @property
    def shared(self) -> list[float]:
        """shared_t/K, stage by stage."""
        return [shared / self.clients for shared, _ in self.stages]

    @property
    def personal(self) -> list[int]:
        """personal_t, stage by stage."""
        return [personal for _, personal in self.stages]

    @property
    def sum(self) -> float:
        """What stands under the square root: T + Σ_t (shared_t/K + personal_t)."""
        return len(self.stages) + sum(self.shared) + sum(self.personal)

    @property
    def bracket(self) -> float:
        """sqrt(log(K n)/n) · sqrt(sum)."""
        return math.sqrt(math.log(self.clients * self.samples) / self.samples * self.sum)

    @property
    def confidence(self) -> float:
        """sqrt(log(2/ζ)/(2 K n)), the only term that depends on ζ."""
        return math.sqrt(math.log(2 / self.zeta) / (2 * self.clients * self.samples))


@dataclass(frozen=True)
class Corollary:
    """The rates of the paper's corollary: shared layers of one width, personal ones of width W·t^(−α).

    Attributes:
        shared: sqrt(L T/(K n)).
        confidence: sqrt(log(1/ζ)/(K n)).
        personal: T^(1−α)/sqrt(n).
        boosting: sqrt(T/n).
    """

    shared: float
    confidence: float
    personal: float
    boosting: float


def harmonic_mean(sizes: Sequence[int]) -> float:
    """K/(1/n_1 + … + 1/n_K).

    Raises:
        UserError: a client has no sample, for which the bound is infinite.
    """
    if min(sizes) < 1:
        raise UserError(
            f"client {list(sizes).index(min(sizes))} has no training sample, and the bound is infinite then; "
            "use fewer clients or a milder split"
        )
    # Exact for equal sizes, where the sum of rounded reciprocals is not.
    return float(sizes[0]) if len(set(sizes)) == 1 else len(sizes) / math.fsum(1 / size for size in sizes)


def bound_of(stages: Sequence[tuple[int, int]], sizes: Sequence[int], zeta: float) -> Bound:
    """The bound's terms for (shared, personal) parameters of each stage and the clients' training samples.

    Raises:
        UserError: there are fewer than two clients, or one has no sample.
    """
    if len(sizes) < 2:
        raise UserError("the bound is stated for at least 2 clients; give a larger --clients")
    return Bound(tuple(stages), len(sizes), harmonic_mean(sizes), zeta)


def corollary(depth: int, stages: int, clients: int, samples: float, alpha: float, zeta: float) -> Corollary:
    """The corollary's rates without its factor W_b + 1.

    Args:
        depth: layers L of the network.
        alpha: α in [0, 1), how fast the personal layers' widths fall with the stages.
    """
    return Corollary(
        shared=math.sqrt(depth * stages / (clients * samples)),
        confidence=math.sqrt(math.log(1 / zeta) / (clients * samples)),
        personal=stages ** (1 - alpha) / math.sqrt(samples),
        boosting=math.sqrt(stages / samples),
    )


# -- from a configuration to stages and samples -------------------------------------------------------


def sizes_of(config: RunConfig, data_dir: Path | None) -> Sizes:
    """The clients' samples by the real split, or by the configuration where no data are found.

    Nothing is downloaded for this.

    Raises:
        UserError: the split cannot be made, or depends on data that are absent.
    """
    try:
        dataset = datasets.load(config.dataset, data_dir, download=False, embedding=config.embedding)
    except UserError as error:
        if "was not found" not in str(error):  # they are here, but damaged
            raise
        if not config.partitioner.sizes:
            raise UserError(
                f"the sizes of a {config.partition} split follow from the data, and '{config.dataset}' was "
                "not found; give --data-dir or another partition"
            ) from error
        source = f"from the configuration, since {config.dataset} was not found; {config.partitioner.sizes}"
        return Sizes((config.samples_per_client,) * config.clients, source)
    split = split_of(config, dataset)
    return Sizes(tuple(map(int, split.train_sizes)), f"from split {split.checksum} of {dataset.source}")


def capacities_of(config: RunConfig) -> list[tuple[int, int]]:
    """(shared, personal) parameters of each stage of the configured method, built but not trained.

    Raises:
        UserError: the method does not say which parameters its clients are evaluated with.
    """
    with dry_run(config, 1) as dry:
        method = dry.make(config.rounds)
        made, stages = type(method), method.capacities()
        usual = made.members is Algorithm.members and made.assemble is Algorithm.assemble
        nothing = not any(personal for _, personal in stages)
        if made.capacities is Algorithm.capacities and nothing and (method.adaptation() or not usual):
            raise UserError(
                f"clients of '{config.algo}' are evaluated with models that its shared and personal layers "
                "do not tell; expected a method that shares some layers and keeps others, such as fedper"
            )
        return stages
