"""Studies that choose hyper-parameters on a validation split of the training data; made on request.

`tuning` tries every method at equally many points; `rates` and `points` are its smallest parts, which two
cores can pay for: three learning rates, and hyper-parameters of single methods, on one setting.
"""

from __future__ import annotations

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.papers.ppfe.studies.shared import METHODS
from pfl_benchmark.studies.grid import Grid, Study, Variant
from pfl_benchmark.studies.points import at_rates, default_rate, own_points, validation, with_points

POINTS = 7  # per method, its default among them
_RATES = (0.25, 0.5, 2, 4, 8, 16)  # in multiples of the default
_ON_REQUEST = ("quick", "paper")


def _points(default: float) -> tuple[Variant, ...]:
    """Every method at its default and at points of its own (`Algorithm.tuning`), then at learning rates."""
    variants = []
    for row in METHODS:
        own = own_points(row)
        nearest = sorted(_RATES, key=lambda rate: max(rate, 1 / rate))
        rates = [default * rate for rate in sorted(nearest[: max(0, POINTS - 1 - len(own))])]
        variants += [row, *own]
        variants += [Variant(f"{row.title}, lr={rate}", row.algo, changes={"lr": rate}) for rate in rates]
    return tuple(variants)


TUNING = Study(
    "tuning",
    "Every method at equally many points, on a validation split",
    {
        "quick": Grid(_points(default_rate("digits-s2")), validation("digits-s2")),
        "paper": Grid(
            _points(RunConfig.lr), validation("cifar10-s2", "cifar10-s5", "cifar100-s20", "cifar100-s5")
        ),
    },
    tables=("tuning",),
    on_request=_ON_REQUEST,
    shows="Each method at equally many hyper-parameter points, chosen without test data.",
)

RATES = Study(
    "rates",
    "Every method at three learning rates, on a validation split",
    {
        "quick": Grid(METHODS, at_rates(*validation("digits-s2"))),
        "paper": Grid(METHODS, at_rates(*validation("cifar10-s5"))),
    },
    tables=("rates", "significance"),
    on_request=_ON_REQUEST,
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
    on_request=_ON_REQUEST,
    shows="Hyper-parameters of single methods, compared without test data.",
)
