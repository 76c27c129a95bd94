"""Studies that choose the protocol and the hyper-parameters; made on request, before the tables.

`calibration` chooses what the paper leaves open for all methods at once, on rows that contain no choice of
PPFE's; `protocols` shows what that choice does to every method, and chooses nothing. `tuning` tries every
method at equally many points, on a validation split of the training data; `rates` and `points` are its
smallest parts: three learning rates, and hyper-parameters of single methods, on one setting.
"""

from __future__ import annotations

import itertools
from typing import Any

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.papers.ppfe.studies.columns import AUGMENTATIONS, under
from pfl_benchmark.papers.ppfe.studies.printed import printed
from pfl_benchmark.papers.ppfe.studies.rows import ABLATIONS, METHODS, method
from pfl_benchmark.studies.grid import Column, Grid, Study, Variant
from pfl_benchmark.studies.points import at_rates, default_rate, own_points, validation, with_points

__all__ = ["CALIBRATION", "OWN_POINTS", "POINTS", "PROTOCOLS", "RATES", "TUNING"]

# -- calibration: augmentation × partition, dropout on CIFAR-100, momentum --------------------------------

_PARTITIONS = ("distinct", "shards")
_TARGETS = {
    "cifar10-s2": ("CIFAR-10", "100", "2"),
    "cifar10-s5": ("CIFAR-10", "100", "5"),
    "cifar100-s20": ("CIFAR-100", "100", "20"),
    "cifar100-s5": ("CIFAR-100", "100", "5"),
}


def _choices() -> list[Column]:
    """Every choice on the four targets."""
    columns = []
    for dropout, partition, augmentation in itertools.product((0.0, 0.6), _PARTITIONS, AUGMENTATIONS):
        name = f"{partition}, {augmentation}"
        if dropout:
            name += f", dropout {dropout} on CIFAR-100"
        columns += _on_targets(name, {"partition": partition, **AUGMENTATIONS[augmentation]}, dropout)
    faster = {"partition": "shards", **AUGMENTATIONS["no augmentation"], "momentum": 0.9}
    return [*columns, *_on_targets("shards, no augmentation, momentum 0.9", faster)]


def _on_targets(name: str, changes: dict[str, Any], dropout: float = 0.0) -> list[Column]:
    columns = []
    for setting, paper in _TARGETS.items():
        own = dict(changes)
        if setting.startswith("cifar100"):  # the only net that has dropout in FedRep's repository
            own["dropout"] = dropout
        columns.append(Column(f"{SETTINGS[setting].title}: {name}", setting, own, paper=paper, group=name))
    return columns


def _quick_choices() -> list[Column]:
    title = SETTINGS["digits-s2"].title
    return [
        Column(f"{title}: {partition}", "digits-s2", {"partition": partition}, group=partition)
        for partition in _PARTITIONS
    ]


_ROWS = (method("local"), method("fedavg"))

CALIBRATION = Study(
    "calibration",
    "Calibration of what the paper leaves open",
    {
        "quick": Grid(_ROWS, tuple(_quick_choices())),
        "paper": Grid(_ROWS, tuple(_choices())),
    },
    tables=("calibration",),
    paper=printed("main"),
    on_request=("quick", "paper"),
    shows="Which choice for what the paper does not state comes closest to its figures.",
)

# -- protocols: what the choice does to every method ---------------------------------------------------


def _protocols() -> tuple[Column, ...]:
    pairs = [("shards", augmentation) for augmentation in AUGMENTATIONS] + [("distinct", "no augmentation")]
    return tuple(itertools.chain(*zip(*(under(*pair) for pair in pairs), strict=True)))  # by setting


PROTOCOLS = Study(
    "protocols",
    "Every method and ablation under every protocol",
    {"paper": Grid((*METHODS, *ABLATIONS), _protocols())},
    tables=("accuracy", "significance", "stages"),
    paper=printed("main"),
    on_request=("quick", "paper"),
    shows="Every method and ablation under each protocol that fits the paper's words.",
)

# -- tuning: the same number of points for every method -----------------------------------------------

POINTS = 7  # per method, its default among them

_RATES = (0.25, 0.5, 2, 4, 8, 16)  # in multiples of the default


def _points(default: float) -> list[Variant]:
    """Every method at its default and at points of its own (`Algorithm.tuning`), then at learning rates."""
    variants = []
    for row in METHODS:
        own = own_points(row)
        nearest = sorted(_RATES, key=lambda rate: max(rate, 1 / rate))
        rates = [default * rate for rate in sorted(nearest[: max(0, POINTS - 1 - len(own))])]
        variants += [row, *own]
        variants += [Variant(f"{row.title}, lr={rate}", row.algo, changes={"lr": rate}) for rate in rates]
    return variants


TUNING = Study(
    "tuning",
    "Every method at equally many points, on a validation split",
    {
        "quick": Grid(tuple(_points(default_rate("digits-s2"))), validation("digits-s2")),
        "paper": Grid(
            tuple(_points(RunConfig.lr)),
            validation("cifar10-s2", "cifar10-s5", "cifar100-s20", "cifar100-s5"),
        ),
    },
    tables=("tuning",),
    on_request=("quick", "paper"),
    shows="Each method at equally many hyper-parameter points, chosen without test data.",
)

# -- rates and points: what of it two cores can pay for ------------------------------------------------


RATES = Study(
    "rates",
    "Every method at three learning rates, on a validation split",
    {
        "quick": Grid(METHODS, at_rates(*validation("digits-s2"))),
        "paper": Grid(METHODS, at_rates(*validation("cifar10-s5"))),
    },
    tables=("rates", "significance"),
    on_request=("quick", "paper"),
    shows="Whether a method's learning rate suits it: three rates, compared without test data.",
)

OWN_POINTS = Study(
    "points",
    "Method-specific hyper-parameters, on a validation split",
    {
        "quick": Grid(with_points(METHODS), validation("digits-s2")),
        "paper": Grid(with_points(METHODS), validation("cifar10-s5")),
    },
    tables=("points",),
    on_request=("quick", "paper"),
    shows="Hyper-parameters of single methods, compared without test data.",
)
