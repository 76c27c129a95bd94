"""What the paper does not say, one switch at a time: causes of differences from it.

`switches` is a look at test accuracy, so nothing is chosen there; hyper-parameters are chosen by the study
`tuning`, and `tuned` shows what its choices do to test accuracy. `readings` takes PPFE apart without a look
at test data.
"""

from __future__ import annotations

from typing import Any

from benchmark.studies.columns import DISTINCT, PLAIN, under, validation
from benchmark.studies.grid import Grid, Study, Variant
from benchmark.studies.rows import ABLATIONS, method

__all__ = ["READINGS", "SWITCHES", "TUNED"]


def _switch(base: Variant, words: str, **hyper: Any) -> Variant:
    """A method with other hyper-parameters, beside the same figure of the paper."""
    return Variant(f"{base.title}{words}", base.algo, paper=base.title, hyper=hyper)


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
_OF_PPFE = (
    _PPFE,
    _switch(_PPFE, ", dense layers from FedAvg", fc_init="fedavg"),
    _switch(_PPFE, ", body at the full rate", body_rate=(1.0,) * 4),
    _switch(_PPFE, ", β on samples held out", beta_data="holdout20"),
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
    _REP,
    _switch(_REP, ", 10 head epochs", head_epochs=10),
    _switch(_REP, ", last round frozen", final_round="frozen"),
    _PER,
    _switch(_PER, ", last round frozen", final_round="frozen"),
    _switch(_PER, ", then 5 epochs of all", ft_epochs=5),
    _LG,
    _switch(_LG, " after 30 rounds of FedAvg", lg_warm=30),
    *_OF_PPFE,
)

SWITCHES = Study(
    "switches",
    "What the paper leaves open, switch by switch",
    {"paper": Grid(_ROWS, (*under("shards", "flips"), *PLAIN, *DISTINCT))},
    tables=("accuracy", "significance", "stages"),
    paper="main",
    on_request=True,
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
    paper="main",
    on_request=True,
)

# -- readings of PPFE, beside its ablations ------------------------------------------------------------

READINGS = Study(
    "readings",
    "PPFE's readings and ablations, on a validation split",
    {
        "paper": Grid(
            (
                *_OF_PPFE,
                _switch(_PPFE, ", body at a tenth from stage 2 on", body_rate=(1.0, 0.1, 0.1, 0.1)),
                _switch(_PPFE, ", ensemble of probabilities", ens_space="probability"),
                _switch(_PPFE, ", reweighting by 0/1 loss", rw_loss="zero_one"),
                _switch(_PPFE, ", reweighting by the ensemble", rw_target="ensemble"),
                *ABLATIONS,
            ),
            validation("cifar10-s2", "cifar10-s5"),
        )
    },
    tables=("accuracy", "significance", "stages"),
    on_request=True,
)
