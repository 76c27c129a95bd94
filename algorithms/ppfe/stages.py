"""The stage plan: which rounds, layers and rates each stage has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from pfl_benchmark.algorithms.ppfe.hyper import FIRST_REDUCED_STAGE, PPFEHyper
from pfl_benchmark.method import Network, Params, SharedRounds, UserError

# Hyper-parameters that stages 1 and 2 do not depend on beyond their plan (`Stage`),
LATER = ("T", "stage_rounds", "body_rate", "heads", "fc_init", "ensemble")
# and those that they do not depend on if reduction comes later.
REDUCING = ("reduction", "ranks", "factor_policy", "mask_rates", "width_alpha")


@dataclass(frozen=True)
class Stage:
    """One stage of the paper's section 4.1.

    Attributes:
        number: t, from 1 (FedAvg) on.
        first, last: its rounds, inclusive.
        personal: personal layers; all others are shared.
        body_rate: learning rate of the shared layers in multiples of the personal one.
    """

    number: int
    first: int
    last: int
    personal: tuple[str, ...]
    body_rate: float


def divide_rounds(total: int, proportions: tuple[int, ...]) -> list[int]:
    """Divide `total` rounds in the given proportions by largest remainders (ties to earlier stages)."""
    whole = sum(proportions)
    counts = [total * part // whole for part in proportions]
    by_remainder = sorted(range(len(counts)), key=lambda i: -(total * proportions[i] % whole))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def least_rounds(proportions: tuple[int, ...]) -> int:
    """The smallest number of rounds from which on every stage has one."""
    # With enough rounds every quota is at least 1. Below, largest remainders can take a stage's only round
    # away again when the total grows, so the first number that works is not enough.
    enough = math.ceil(sum(proportions) / min(proportions))
    empty = [n for n in range(len(proportions), enough) if 0 in divide_rounds(n, proportions)]
    return max(empty, default=len(proportions) - 1) + 1


def plan_stages(network: Network, rounds: int, hyper: PPFEHyper) -> list[Stage]:
    """The stages of a run of `rounds` rounds."""
    stages, first = [], 1
    for t, count in enumerate(divide_rounds(rounds, hyper.stage_rounds[: hyper.T]), start=1):
        personal = network.tail(hyper.heads or t - 1) if t > 1 else ()
        stages.append(Stage(t, first, first + count - 1, personal, hyper.body_rate[t - 1]))
        first += count
    return stages


def check_stages(network: Network, rounds: int, hyper: PPFEHyper) -> None:
    """Refuse plans that cannot be run.

    Raises:
        UserError: too many stages or personal layers, missing entries, or a stage without rounds.
    """
    most = len(network.splittable)
    if not hyper.heads and most + 1 < hyper.T:
        raise UserError(
            f"T={hyper.T}: this network has {most} fully connected layers to personalize, one a stage after "
            f"the first; give at most {most + 1}"
        )
    if hyper.heads > most:
        raise UserError(
            f"heads={hyper.heads}: this network has {most} fully connected layers; give at most that"
        )
    for name in ("stage_rounds", "body_rate"):
        if len(getattr(hyper, name)) < hyper.T:
            raise UserError(
                f"{name} has {len(getattr(hyper, name))} entries for T={hyper.T} stages; give {hyper.T}"
            )
    if 0 in hyper.stage_rounds[: hyper.T]:
        raise UserError(
            f"stage_rounds={','.join(map(str, hyper.stage_rounds))}: every stage needs at least 1 round"
        )
    counts = divide_rounds(rounds, hyper.stage_rounds[: hyper.T])
    if 0 in counts:
        raise UserError(
            f"{rounds} rounds leave stage {counts.index(0) + 1} of {hyper.T} without a round; "
            "give more --rounds or other stage_rounds"
        )


def describe_plan(
    dense: Network, stages: Sequence[Stage], networks: Mapping[int, Network], masks: Params | None
) -> list[str]:
    """A line for each stage: rounds, layers and parameters; one for each mask of the last stage.

    Args:
        dense: the whole network, to which the others are compared.
    """
    whole, lines = dense.count(), []
    for stage in stages:
        network = networks[stage.number]
        total, shared = network.count(), network.count(n for n in network.names if n not in stage.personal)
        percent = 100 * (total / whole - 1)
        change = f" ({abs(percent):.2f} % {'fewer' if percent < 0 else 'more'})" if percent else ""
        lines.append(
            f"stage {stage.number}: rounds {stage.first}-{stage.last}, personal "
            f"{', '.join(stage.personal) or 'none'}; {total:,} parameters{change}, "
            f"{shared:,} shared ({100 * shared / whole:.2f} % of the whole model)"
        )
    for key, mask in (masks or {}).items():
        masked = int((mask == 0).sum())
        lines.append(f"mask: {masked:,} of {mask.numel():,} entries of {key} stay 0 while it is personal")
    return lines


def from_server(stage: Stage, dense: Network, fc_init: str) -> tuple[str, ...]:
    """Layers that begin a stage as the server's of the one before; the rest is θ_F's or the clients'."""
    never_reduced = tuple(name for name in dense.names if name not in dense.splittable)
    if stage.number == 2 or fc_init == "fedavg_all":
        return ()
    if fc_init == "fedavg" or (fc_init == "fedavg_chain" and stage.number > FIRST_REDUCED_STAGE):
        return never_reduced
    if fc_init == "fedavg_chain":
        return ()
    return tuple(name for name in dense.names if name not in stage.personal)


def beginnings(hyper: PPFEHyper, stages: Sequence[Stage], earliest: int) -> list[SharedRounds]:
    """What a run may have in common with FedAvg, and with other variants (`two_stages`)."""
    first = stages[0]
    # Otherwise stage 1 is no run of FedAvg on all training data.
    plain = first.body_rate == 1 and hyper.beta_data == "train" and not hyper.full_last_only
    found = [SharedRounds("fedavg", first.last)] if plain else []
    if len(stages) > 2:
        found.append(SharedRounds(two_stages(hyper, stages, earliest), stages[1].last, whole=True))
    return found


def two_stages(hyper: PPFEHyper, stages: Sequence[Stage], earliest: int) -> str:
    """A name of all that stages 1 and 2 depend on: many variants differ from stage 3 on.

    earliest: the first stage that is reduced.
    """
    free = (*LATER, *REDUCING) if earliest > 2 else LATER
    if hyper.rw_target == "single":  # sample weights do not depend on the ensemble
        free = (*free, "ens_space")
    chosen = {name: value for name, value in asdict(hyper).items() if name not in free}
    return f"ppfe {[*stages[:2]]} {chosen}"
