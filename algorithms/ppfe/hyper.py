"""Hyper-parameters and named ablations of PPFE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pfl_benchmark.algorithms.decoupled import DecoupledHyper
from pfl_benchmark.method import SPACES, UserError, option

# Readings of how reduced stages begin; `PPFE.start_round` says what each takes from where.
STARTS = ("prev", "fedavg_heads", "fedavg", "fedavg_chain", "fedavg_all")
FIRST_REDUCED_STAGE = 3
RESHAPING = ("svd", "width")  # reductions that change the shapes of layers


@dataclass(frozen=True)
class PPFEHyper(DecoupledHyper):
    """Every choice the paper varies or leaves open; defaults are its text where it is unambiguous."""

    T: int = option(
        4,
        "stages: one more than fully connected layers that may become personal",
        least=1,
        search=(2, 3, 4),
    )
    stage_rounds: tuple[int, ...] = option(
        (30, 50, 40, 40),
        "rounds of the stages, as proportions of --rounds; the first T count; default for text 10,20,10,10",
        least=0,
    )
    body_rate: tuple[float, ...] = option(
        (1.0, 1.0, 0.1, 0.1), "learning rate of the shared layers by stage, in multiples of --lr", least=0
    )
    heads: int = option(
        0, "0: stage t has t−1 personal layers; n: every stage after the first has n", least=0
    )
    reduction: str = option(
        "svd",
        "how the fully connected layers shrink from stage 3 on",
        choices=("svd", "sparse", "width", "none"),
    )
    ranks: tuple[int, ...] = option(
        (),
        "svd: ranks of the layers in stage 3, then in stage 4, …; empty: the paper's for CIFAR-10, for other "
        "networks such that layers shrink alike",
        least=1,
    )
    factor_policy: str = option(
        "clamp",
        "svd: ranks above the matrix rank are cut, kept as stated, or layers stay dense",
        choices=("clamp", "literal", "skip_last", "skip_if_not_smaller"),
    )
    mask_rates: tuple[float, ...] = option(
        (0.3, 0.4, 0.5),
        "sparse: masked share of a layer, in the order they become personal",
        least=0,
        below=1,
    )
    width_alpha: float = option(0.25, "width: personal hidden layers of stage t have W·t^(−α) units", least=0)
    fc_init: str = option(
        "auto",
        "start of reduced stages. prev: each client's model of the previous stage. From the FedAvg model of "
        "stage 1 instead: fedavg_heads: personal layers; fedavg: fully connected layers; fedavg_chain: the "
        "whole of stage 3, later fully connected layers; fedavg_all: everything. "
        "auto: fedavg, or prev where no shapes change",
        choices=("auto", *STARTS),
    )
    reweight: bool = option(True, "reweight samples between stages")
    rw_apply: str = option(
        "loss",
        "what weights do: weigh losses, or set the chances by which each epoch's samples are drawn",
        choices=("loss", "resample"),
        absent="loss",
    )
    rw_batch: str = option(
        "auto",
        "a batch's loss. mean: Σ ω ℓ over the number of samples; weighted_mean: Σ ω ℓ over Σ ω. auto: mean",
        choices=("auto", "mean", "weighted_mean"),
        absent="mean",
    )
    rw_loss: str = option(
        "ce_norm",
        "loss ℓ of reweighting: cross-entropy over its maximum, 0/1 error, or raw cross-entropy as exponent",
        choices=("ce_norm", "zero_one", "ce_raw"),
        search=("ce_norm", "zero_one"),
    )
    rw_target: str = option(
        "single",
        "model whose loss counts: the stage's alone, or the ensemble's",
        choices=("single", "ensemble"),
        search=("single", "ensemble"),
    )
    rw_sign: int = option(1, "sign of the exponent: 1 as in Algorithm 1, -1 as in the text", least=-1)
    rw_double: bool = option(False, "twice the exponent, AdaBoost's full step under 0/1 loss")
    beta_neg: bool = option(False, "allow negative ensemble weights β")
    samme: bool = option(False, "add SAMME's log(C − 1) to β")
    ens_space: str = option(
        "logit", "what the ensemble sums: logits, probabilities, or one vote a stage", choices=SPACES
    )
    ensemble: str = option("all", "stages that predict: all, or the last one alone", choices=("all", "last"))
    beta_data: str = option(
        "train",
        "samples that β is measured on: those trained on, or a fifth of them kept out of all training",
        choices=("train", "holdout20"),
        absent="train",
    )
    full_last_only: bool = option(
        False, "everyone takes part in the last round of the run only, not of every stage", absent=False
    )
    closing_body: str = option(
        "shared",
        "shared layers that a stage's models are judged and evaluated with at its end: the server's, or each "
        "client's own as it trained them in the stage's last round",
        choices=("shared", "own"),
        absent="shared",
    )

    def __post_init__(self) -> None:
        if self.rw_batch == "auto":
            object.__setattr__(self, "rw_batch", "mean")
        if self.fc_init == "auto":
            start = "fedavg" if self.reduction in RESHAPING and self.T > 2 else "prev"
            object.__setattr__(self, "fc_init", start)


def _fixed_head(layers: int) -> Mapping[str, Any]:
    """M1 to M3: FedAvg for 30 rounds, then that many personal layers for the rest (130 of 160)."""
    return {
        "T": 2,
        "stage_rounds": (30, 130),
        "body_rate": (1.0, 1.0),
        "heads": layers,
        "reduction": "none",
        "reweight": False,
        "ensemble": "last",
    }


# What the default and the ablations above are for text: the paper's 50 rounds are 10, 20, 10, 10.
TEXT_ROUNDS: dict[tuple[int, ...], tuple[int, ...]] = {
    (30, 50, 40, 40): (10, 20, 10, 10),
    (30, 130): (10, 40),
}

ABLATIONS: dict[str, Mapping[str, Any]] = {
    "no-reduction": {"reduction": "none"},
    "no-progression": {"reduction": "none", "heads": 1},
    "no-progression-no-reweighting": {"reduction": "none", "heads": 1, "reweight": False},
    "no-reweighting": {"reweight": False},
    "fixed-head-1": _fixed_head(1),
    "fixed-head-2": _fixed_head(2),
    "fixed-head-3": _fixed_head(3),
    "sparse": {"reduction": "sparse"},
    "width": {"reduction": "width"},
}


def remedies(hyper: PPFEHyper, stage: int) -> list[str]:
    """What may help where a stage diverges, besides what helps any method."""
    found = []
    if hyper.reweight and hyper.rw_apply == "loss" and stage > 1:
        found.append("--set reweight=false")
        if hyper.rw_batch == "mean":
            found.append("--set rw_batch=weighted_mean")
    if hyper.reduction in RESHAPING and hyper.fc_init == "prev" and stage >= FIRST_REDUCED_STAGE:
        found.append("--set fc_init=fedavg")
    return found


def check_switches(hyper: PPFEHyper, everyone_ends: bool = True) -> None:
    """Refuse switches that leave one another nothing to do.

    Args:
        everyone_ends: ``--last-round everyone``, which stages end with, too.

    Raises:
        UserError: names both.
    """
    chosen = {"full_last_only": "true"} if hyper.full_last_only else {}
    chosen |= {"closing_body": "own"} if hyper.closing_body == "own" else {}
    chosen |= {"personal_start": "average"} if hyper.personal_start == "average" else {}
    if chosen and not everyone_ends:
        name, value = next(iter(chosen.items()))
        raise UserError(
            f"{name}={value}: under --last-round cohort no stage ends with everyone; leave one out"
        )
    if hyper.rw_sign not in (1, -1):
        raise UserError(f"rw_sign={hyper.rw_sign}: expected 1 (Algorithm 1) or -1 (the text)")
    if hyper.fc_init != "prev" and hyper.reduction not in RESHAPING:
        raise UserError(
            f"fc_init={hyper.fc_init}: reduction={hyper.reduction} leaves the shapes of layers as they "
            "are, so that all go on from the previous stage; leave fc_init out, or give reduction=svd"
        )
    if hyper.fc_init != "prev" and hyper.T < FIRST_REDUCED_STAGE:
        raise UserError(f"fc_init={hyper.fc_init}: T={hyper.T} has no reduced stage; leave fc_init out")
    idle = "reweight=false" if not hyper.reweight else "T=1" if hyper.T == 1 else ""
    for name, usual in (("rw_sign", 1), ("rw_double", False), ("rw_apply", "loss")):
        if idle and getattr(hyper, name) != usual:
            value = str(getattr(hyper, name)).lower()
            raise UserError(f"{name}={value}: {idle} has no sample weights to apply; leave one out")
    if hyper.rw_batch != "mean" and (idle or hyper.rw_apply != "loss"):
        reason = idle or "rw_apply=resample"
        raise UserError(f"rw_batch={hyper.rw_batch}: {reason} weighs no losses; leave one out")
    if hyper.closing_body == "own" and hyper.full_last_only:
        raise UserError(
            "closing_body=own: under full_last_only=true not everyone trains in a stage's last round; leave "
            "one out"
        )
    if hyper.ens_space != "logit" and hyper.ensemble == "last" and hyper.rw_target == "single":
        raise UserError(
            f"ens_space={hyper.ens_space}: ensemble=last leaves nothing to sum; leave one of them out"
        )
    if hyper.personal_start == "average" and hyper.full_last_only:
        raise UserError(
            "personal_start=average: full_last_only=true ends stages with clients that have not met a "
            "mean; leave one out"
        )
