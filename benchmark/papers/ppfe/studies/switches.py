"""What the paper does not say, one switch at a time: causes of differences from it.

`switches` is a look at test accuracy, so nothing is chosen there; hyper-parameters are chosen by the study
`tuning`, and `tuned` shows what its choices do to test accuracy. `readings` takes PPFE apart without a look
at test data.
"""

from __future__ import annotations

from typing import Any

from pfl_benchmark.papers.ppfe.studies.columns import DISTINCT, PLAIN, under
from pfl_benchmark.papers.ppfe.studies.printed import printed
from pfl_benchmark.papers.ppfe.studies.rows import ABLATIONS, PREVIOUS, method
from pfl_benchmark.studies.grid import Grid, Study, Variant
from pfl_benchmark.studies.points import validation

__all__ = ["READINGS", "SWITCHES", "TUNED"]


def _switch(base: Variant, words: str, **hyper: Any) -> Variant:
    """A method with other hyper-parameters, beside the same figure of the paper."""
    changed = {**base.hyper, **hyper}
    return Variant(f"{base.title}{words}", base.algo, paper=base.paper or base.title, hyper=changed)


def _decayed(base: Variant, rate: float) -> Variant:
    """A method with its official code's weight decay (on weights; theirs on biases too, but FedRep's)."""
    words = f"{base.title}, weight decay {rate:g}"
    return Variant(words, base.algo, paper=base.title, changes={"weight_decay": rate})


_LOCAL = method("local")
_FT = method("fedavg-ft")
_BABU = method("fedbabu")
_REP = method("fedrep")
_PER = method("fedper")
_LG = method("lg-fedavg")
_DITTO = method("ditto")
_FDA = method("pfedfda")
_PPFE = method("ppfe")
_HEAD_OF_FT = _switch(_FT, ", 10 epochs of the head", ft_part="head", ft_epochs=10)
_LONGER_BABU = _switch(_BABU, ", 10 epochs", ft_epochs=10)
_STARTS = {  # of reduced stages: results/ppfe.md, "How stages begin"; `PREVIOUS` is one more
    "fedavg_heads": "heads from FedAvg",
    "fedavg_chain": "stage 3 from FedAvg",
    "fedavg_all": "stages 3 and 4 from FedAvg",
}


def _variations(base: Variant) -> tuple[Variant, ...]:
    """A reading of PPFE with other body rates and other data for β."""
    return (
        _switch(base, ", body at the full rate", body_rate=(1.0,) * 4),
        _switch(base, ", β on samples held out", beta_data="holdout20"),
    )


_OF_PPFE = (
    _PPFE,
    PREVIOUS,
    *(_switch(_PPFE, f", {words}", fc_init=start) for start, words in _STARTS.items()),
    _switch(_PPFE, ", new clients from the mean", personal_start="average"),
    _switch(_PPFE, ", samples drawn by weight", rw_apply="resample"),
    _switch(_PPFE, ", ensemble of votes", ens_space="vote"),
    *_variations(_PPFE),
    *_variations(PREVIOUS),
)

_ROWS = (
    _LOCAL,
    _switch(_LOCAL, ", 160 epochs", total_epochs=160),
    method("fedavg"),
    _FT,
    _switch(_FT, ", 1 epoch", ft_epochs=1),
    _switch(_FT, ", 10 epochs", ft_epochs=10),
    _switch(_FT, ", 5 epochs of the head", ft_part="head"),
    _HEAD_OF_FT,
    _BABU,
    _LONGER_BABU,
    _switch(_BABU, ", 5 epochs of the head", ft_part="head"),
    _switch(_BABU, ", 10 epochs of the head", ft_part="head", ft_epochs=10),
    _switch(_BABU, ", official learning rates", lr_steps=True, ft_lr=0.001),
    _REP,
    _switch(_REP, ", 10 head epochs", head_epochs=10),
    _switch(_REP, ", last round frozen", final_round="frozen"),
    _switch(_REP, ", new clients from the mean", personal_start="average"),
    _decayed(_REP, 1e-4),  # FedRep models/Update.py
    _PER,
    _switch(_PER, ", last round frozen", final_round="frozen"),
    _switch(_PER, ", then 5 epochs of all", ft_epochs=5),
    _LG,
    _switch(_LG, " after 30 rounds of FedAvg", lg_warm=30),
    _FDA,
    _decayed(_FDA, 5e-4),  # pFedFDA main.py
    *_OF_PPFE,
)

SWITCHES = Study(
    "switches",
    "What the paper leaves open, switch by switch",
    {"paper": Grid(_ROWS, (*under("shards", "flips"), *PLAIN, *DISTINCT))},
    tables=("accuracy", "significance", "stages"),
    paper=printed("main"),
    on_request=("paper",),
    shows="The effect of each choice that the paper leaves open, one at a time.",
)

# -- tuned: what the validation split prefers, on test data ----------------------------------------------


def _at_rate(base: Variant, rate: float) -> Variant:
    return Variant(f"{base.title}, lr {rate}", base.algo, paper=base.title, changes={"lr": rate})


TUNED = Study(
    "tuned",
    "Methods as the validation split prefers them, on test data",
    {
        "paper": Grid(
            (  # the default, then the best learning rate and the best point of its own where these are others
                _LOCAL,
                _at_rate(_LOCAL, 0.02),
                _FT,
                _at_rate(_FT, 0.005),
                _HEAD_OF_FT,
                _DITTO,
                _switch(_DITTO, ", λ = 0.75", lam=0.75),
                _BABU,
                _at_rate(_BABU, 0.005),
                _LONGER_BABU,
                _REP,
                _at_rate(_REP, 0.02),
                _switch(_REP, ", 1 head epoch, 4 of the body", head_epochs=1, body_epochs=4),
                _PER,
                _at_rate(_PER, 0.02),
                _LG,
                _switch(_LG, " after 20 rounds of FedAvg", lg_warm=20),
                _FDA,
                _switch(_FDA, ", one β for mean and covariance", single_beta=True),
                _PPFE,
            ),
            tuple(column for column in under("shards", "flips") if column.setting == "cifar10-s5"),
        )
    },
    tables=("accuracy", "significance"),
    paper=printed("main"),
    on_request=("paper",),
    shows="Test accuracy at the points that held-out training samples prefer.",
)

# -- readings of PPFE, beside its ablations ------------------------------------------------------------


def _points(base: Variant) -> tuple[Variant, ...]:
    return (
        _switch(base, ", body at a tenth from stage 2 on", body_rate=(1.0, 0.1, 0.1, 0.1)),
        _switch(base, ", ensemble of probabilities", ens_space="probability"),
        _switch(base, ", reweighting by 0/1 loss", rw_loss="zero_one"),
        _switch(base, ", reweighting by the ensemble", rw_target="ensemble"),
    )


READINGS = Study(
    "readings",
    "PPFE's readings and ablations, on a validation split",
    {
        "paper": Grid(
            (
                *_OF_PPFE,
                *_points(_PPFE),
                *_points(PREVIOUS),
                *(row for row in ABLATIONS if row != PREVIOUS),
            ),
            validation("cifar10-s2", "cifar10-s5"),
        )
    },
    tables=("accuracy", "significance", "stages"),
    on_request=("paper",),
    shows="Variants of PPFE that fit the paper's words, compared without test data.",
)
