"""What a method spends until it first reaches a given accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.network import knows_network
from pfl_benchmark.records.store import Record
from pfl_benchmark.studies.dry_run import adapts


@dataclass(frozen=True)
class Target:
    """An accuracy to reach.

    Attributes:
        title: as tables print it.
        at: the accuracy (0..1) by seed; runs of other seeds are not asked.
    """

    title: str
    at: Mapping[int, float]

    @property
    def mean(self) -> float:
        """Over the seeds; NaN without any."""
        return fmean(self.at.values()) if self.at else math.nan


@dataclass(frozen=True)
class Cost:
    """What one run had spent at the first evaluation with the accuracy.

    Attributes:
        bytes: up and down, with broadcasts of stages closed before.
        samples: of training alone.
        at_most: the model that counts was not evaluated before.
    """

    rounds: int
    bytes: int
    samples: int
    at_most: bool


@dataclass(frozen=True)
class Reached:
    """Runs of several seeds.

    Attributes:
        costs: of the runs that have reached it.
        seeds: how many runs there are.
    """

    costs: Sequence[Cost]
    seeds: int

    def mean(self, name: str) -> float | None:
        """Of a field of `Cost`; None unless all runs have reached it."""
        if not self.costs or len(self.costs) < self.seeds:
            return None
        return fmean(getattr(cost, name) for cost in self.costs)


def at_last(title: str, records: Mapping[int, Record]) -> Target:
    """The accuracies of some runs after their last round."""
    return Target(title, {seed: float(record.summary["accuracy"]) for seed, record in records.items()})


def reached(records: Mapping[int, Record], target: Target) -> Reached:
    """What the runs of a method, by seed, spend to reach a target."""
    asked = [(record, target.at[seed]) for seed, record in records.items() if seed in target.at]
    costs = [cost for record, accuracy in asked if (cost := cost_to(record, accuracy)) is not None]
    return Reached(costs, len(asked))


def cost_to(record: Record, accuracy: float) -> Cost | None:
    """What a run had spent at its first evaluation with at least `accuracy`; None: never.

    Evaluations of models that are not fine-tuned do not count where the final one is. What an evaluation
    itself would cost (the broadcast after that round, fine-tuning) is not charged in any round.
    """
    last = len(record.rounds)
    late = adapted_at_the_end_alone(record)
    sent = trained = 0
    for line in record.rounds:
        sent += line["bytes_up"] + line["bytes_down"]
        trained += line["samples"]
        counts = "accuracy" in line and (not late or line["round"] == last)
        if counts and line["accuracy"] >= accuracy:
            return Cost(line["round"], sent, trained, at_most=late)
        sent += line["bytes_broadcast"]
    return None


def adapted_at_the_end_alone(record: Record) -> bool:
    """Whether evaluations on the way were of another kind of model than the final one."""
    config, fine_tuned = record.config, bool(record.summary["adaptation_samples"])
    if config.eval_adapted or not fine_tuned:
        return False
    known = config.algo in ALGORITHMS and knows_network(config)
    return adapts(config) if known else fine_tuned  # other methods count passes of the evaluation
