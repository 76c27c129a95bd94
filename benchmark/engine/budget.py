"""How many rounds a run gets: the same number for every method, or the same bytes.

Under a byte budget a run gets as many rounds as fit, so that it ends before the round that would exceed it
and still closes with everyone taking part. Methods that send nothing or almost nothing would go on for
ever: they are capped by compute, in local samples processed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmark.engine.algorithm import Algorithm
from benchmark.engine.config import RunConfig
from benchmark.engine.schedule import Schedule
from benchmark.errors import UserError

__all__ = ["Plan", "plan_rounds"]


@dataclass(frozen=True)
class Plan:
    """The number of rounds of a run and what set it.

    Attributes:
        limit: bytes of the budget (0 under a budget of rounds).
        planned: bytes that the planned rounds will cost, broadcasts included.
    """

    rounds: int
    set_by: Literal["rounds", "bytes", "compute"]
    limit: int = 0
    planned: int = 0


def plan_rounds(config: RunConfig, schedule: Schedule, make: Callable[[int], Algorithm]) -> Plan:
    """Find the number of rounds.

    Args:
        make: builds the method for a given number of rounds (its stages may depend on it).

    Raises:
        UserError: if not even one round fits the byte budget.
    """
    if config.budget == "rounds":
        return Plan(config.rounds, "rounds")
    limit = config.byte_budget or whole_model_bytes(config, schedule, make(config.rounds))
    ordinary = (config.rounds - 1) * schedule.cohort_size + schedule.clients
    most_epochs = config.compute_cap * ordinary * config.local_epochs

    def fits(rounds: int) -> tuple[bool, bool, int]:
        algorithm = make(rounds)
        sent = planned_bytes(algorithm, schedule)
        return sent <= limit, planned_epochs(algorithm, schedule) <= most_epochs, sent

    least = make(config.rounds).least_rounds
    low, high = least - 1, least
    while all(fits(high)[:2]):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if all(fits(middle)[:2]) else (low, middle)
    if low < least:
        raise UserError(
            f"--byte-budget {limit:,} is too small: the least that '{config.algo}' can do, {least} round(s), "
            f"costs {fits(least)[2]:,} bytes; give at least that"
        )
    fits_bytes, _, _ = fits(low + 1)
    return Plan(low, "compute" if fits_bytes else "bytes", limit, fits(low)[2])


def whole_model_bytes(config: RunConfig, schedule: Schedule, algorithm: Algorithm) -> int:
    """Bytes of sharing the whole initial network for ``config.rounds`` rounds, last broadcast included."""
    size = 4 * algorithm.task.network.count()
    participations = (config.rounds - 1) * schedule.cohort_size + schedule.clients
    return 2 * size * participations + size * schedule.clients


def planned_bytes(algorithm: Algorithm, schedule: Schedule) -> int:
    """Bytes of a whole run by the method's own declaration."""
    total = 0
    for round in range(1, algorithm.task.rounds + 1):
        closing = algorithm.closes_stage(round)
        traffic = algorithm.traffic(round)
        total += schedule.size(closing) * (traffic.down + traffic.up)
        total += schedule.clients * traffic.down if closing else 0
    return total


def planned_epochs(algorithm: Algorithm, schedule: Schedule) -> int:
    """Local epochs of a whole run, over all participations."""
    return sum(
        schedule.size(algorithm.closes_stage(round)) * sum(phase.epochs for phase in algorithm.phases(round))
        for round in range(1, algorithm.task.rounds + 1)
    )
