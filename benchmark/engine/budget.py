"""How many rounds a run gets: the same number for every method, the same bytes, or the same samples.

Under a budget of bytes or samples a run gets as many rounds as fit, so that it ends before the round that
would exceed it and still closes as --last-round says. Methods that send nothing or almost nothing would
go on for ever under a budget of bytes: they are capped by compute, in local samples processed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.engine.algorithm import Algorithm, RunContext
from pfl_benchmark.engine.dry import Costs
from pfl_benchmark.errors import UserError

_MOST = 100_000  # rounds that a budget may come to, unless --rounds says more: each is planned for


@dataclass(frozen=True)
class Plan:
    """The number of rounds of a run and what set it.

    Attributes:
        limit: bytes or samples of the budget (0 under a budget of rounds).
        planned: bytes that the planned rounds will cost, broadcasts included; or samples, with those of
            fine-tuning and other passes of the final evaluation.
    """

    rounds: int
    set_by: Literal["rounds", "bytes", "samples", "compute"]
    limit: int = 0
    planned: int = 0


def last_round(plan: Plan, config: RunConfig) -> int:
    """The round that a run ends with: the last that is planned, or one at which it was stopped."""
    return min(config.stop_after or plan.rounds, plan.rounds)


def plan_rounds(config: RunConfig, make: Callable[[int], Algorithm]) -> Plan:
    """Find the number of rounds.

    Args:
        make: builds the method for a given number of rounds (its stages may depend on it).

    Raises:
        UserError: if not even one round fits the budget, or more rounds than anybody trains.
    """
    if config.budget == "rounds":
        return Plan(config.rounds, "rounds")
    usual = make(config.rounds)
    if config.budget == "bytes":
        limit = config.byte_budget or whole_model_bytes(usual.task)
        most_epochs = config.compute_cap * _ordinary_epochs(usual) * _participations(usual.task)
    else:
        limit = config.sample_budget or ordinary_samples(usual)
        most_epochs = math.inf

    known = Costs()

    @cache
    def costs(rounds: int) -> tuple[int, float]:
        algorithm = make(rounds)
        if config.budget == "samples":
            return planned_samples(algorithm, known), 0.0
        return planned_bytes(algorithm, known), planned_epochs(algorithm, costs=known)

    def fits(rounds: int) -> bool:
        spent, epochs = costs(rounds)
        return spent <= limit and epochs <= most_epochs

    least = usual.least_rounds
    low, high = least - 1, least
    while fits(high):
        if high > config.rounds and costs(high) == costs(low):  # more cost nothing: no budget ends them
            return Plan(
                config.rounds,
                "compute" if config.budget == "bytes" else "rounds",
                limit,
                costs(config.rounds)[0],
            )
        if high >= max(_MOST, config.rounds):
            raise UserError(_too_large(config, high, costs(high)[0]))
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    if low < least:
        raise UserError(_too_small(config, least, limit, *costs(least), most_epochs))
    set_by: Literal["bytes", "samples", "compute"] = "bytes" if config.budget == "bytes" else "samples"
    if costs(low + 1)[0] <= limit:
        set_by = "compute"
    return Plan(low, set_by, limit, costs(low)[0])


def _too_small(config: RunConfig, rounds: int, limit: int, spent: int, epochs: float, most: float) -> str:
    work = f"the least that '{config.algo}' can do, {rounds} round(s),"
    if spent > limit:
        name, given = _named(config)
        if given:
            least = f"costs {spent:,} {config.budget}; give at least that"
            return f"{name} {limit:,} is too small: {work} {least}"
        return (
            f"--budget {config.budget} is too small: {work} costs {spent:,}, and what --rounds "
            f"{config.rounds} stands for is {limit:,}; give more --rounds, or at least that by {name}"
        )
    return (
        f"the compute that --budget bytes allows is too small: {work} takes {epochs:,} local epochs over all "
        f"clients, {most:,.0f} are allowed; give --compute-cap {config.compute_cap * epochs / most:.3g} or "
        f"more, it is {config.compute_cap:g}"
    )


def _too_large(config: RunConfig, rounds: int, spent: int) -> str:
    return (
        f"--budget {config.budget} is too large: '{config.algo}' would train for {rounds:,} rounds or "
        f"more, which cost {spent:,}; give less than that by {_named(config)[0]}"
    )


def _named(config: RunConfig) -> tuple[str, int]:
    """The flag that states the budget, and its value; 0 where the budget follows from ``--rounds``."""
    if config.budget == "bytes":
        return "--byte-budget", config.byte_budget
    return "--sample-budget", config.sample_budget


def _participations(task: RunContext) -> int:
    """Participations of all clients, if no round has everyone but the last one (`--last-round`)."""
    return (task.rounds - 1) * task.schedule.cohort_size + task.schedule.size(task.config.everyone_ends)


def whole_model_bytes(task: RunContext) -> int:
    """Bytes of sharing the whole initial network for ``task.rounds`` rounds, last broadcast included."""
    return 4 * task.network.count() * (2 * _participations(task) + task.data.clients)


def ordinary_samples(algorithm: Algorithm) -> int:
    """Samples of a run's rounds in which every participant does the protocol's local work."""
    task, last = algorithm.task, algorithm.task.rounds
    ends = task.config.everyone_ends
    cohorts = (task.schedule.cohort(round, ends and round == last) for round in range(1, last + 1))
    return sum(algorithm.local_samples(client) for cohort in cohorts for client in cohort)


def _ordinary_epochs(algorithm: Algorithm) -> float:
    """Epochs of the protocol's local work, of the largest client."""
    sizes, steps = algorithm.task.data.train_sizes, algorithm.config.local_steps
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    return algorithm.local_samples(largest) / sizes[largest] if steps else algorithm.config.local_epochs


def planned_samples(algorithm: Algorithm, costs: Costs | None = None) -> int:
    """Samples of a whole run, those of the final evaluation included; a part of one counts as one."""
    task, total, costs = algorithm.task, 0.0, costs or Costs()
    sizes, last = task.data.train_sizes, task.rounds
    for round, cost in costs.of(algorithm):
        cohort = task.schedule.cohort(round, algorithm.kind(round).full_participation)
        total += cost.samples([sizes[client] for client in cohort], task.config.batch_size)
    everyone = sum(sizes[client] for client in task.schedule.cohort(last, True))
    return math.ceil(total + costs.evaluation(algorithm) * everyone - 1e-6)


def planned_bytes(algorithm: Algorithm, costs: Costs | None = None) -> int:
    """Bytes of a whole run."""
    total, task = 0, algorithm.task
    for round, cost in (costs or Costs()).of(algorithm):
        kind = algorithm.kind(round)
        total += task.schedule.size(kind.full_participation) * (cost.down + cost.up)
        total += first_participants(algorithm, round) * cost.first if cost.first else 0
        total += task.data.clients * cost.closing
        total += left_out(algorithm, round) * cost.first if cost.first and kind.closing else 0
    return total


def first_participants(algorithm: Algorithm, round: int) -> int:
    """Number of clients that take part in `round` for the first time in its stage."""
    kind = algorithm.kind(round)
    met = _met(algorithm, round - 1, kind.stage)
    return len(set(algorithm.task.schedule.cohort(round, kind.full_participation)) - met)


def left_out(algorithm: Algorithm, round: int) -> int:
    """Number of clients that have not taken part in the stage of `round` up to it."""
    return algorithm.task.data.clients - len(_met(algorithm, round, algorithm.kind(round).stage))


def _met(algorithm: Algorithm, last: int, stage: int) -> set[int]:
    """Clients that have taken part in a stage up to round `last`."""
    task, found = algorithm.task, set[int]()
    while last and (kind := algorithm.kind(last)).stage == stage and len(found) < task.data.clients:
        found.update(task.schedule.cohort(last, kind.full_participation))
        last -= 1
    return found


def planned_epochs(algorithm: Algorithm, last: int | None = None, costs: Costs | None = None) -> float:
    """Local epochs of a run up to round `last` (default: its end), over all participations.

    Batches in place of epochs (``--local-steps``) count as what they are of the largest client's samples.
    """
    last, size = algorithm.task.rounds if last is None else last, max(algorithm.task.data.train_sizes)
    return sum(
        algorithm.task.schedule.size(algorithm.kind(round).full_participation)
        * cost.passes(size, algorithm.config.batch_size)
        for round, cost in (costs or Costs()).of(algorithm)
        if round <= last
    )
