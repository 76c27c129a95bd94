"""All studies: those of the papers, and what is made of every method without a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pfl_benchmark.algorithms import ALGORITHMS
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.errors import UserError, unknown
from pfl_benchmark.studies.grid import Column, Grid, Profile, Study, Variant
from pfl_benchmark.studies.papers import offered
from pfl_benchmark.studies.points import at_rates, validation, with_points
from pfl_benchmark.studies.profiles import PROFILES
from pfl_benchmark.studies.study_file import read_study

_METHODS = tuple(
    Variant(method.title, name)
    for name, method in sorted(ALGORITHMS.items())
    if not method.needs_adapters  # their networks are others than those of the other methods
)


def _side_by_side(*settings: str) -> Grid:
    return Grid(_METHODS, tuple(Column(SETTINGS[name].title, name) for name in settings))


def _rates(setting: str, *rates: float) -> tuple[Column, ...]:
    title = SETTINGS[setting].title
    (held_out,) = validation(setting)
    return tuple(
        replace(held_out, title=f"{title}, lr {rate:g}", changes={**held_out.changes, "lr": rate})
        for rate in rates
    )


_OWN = Study(
    "methods",
    "All methods side by side",
    {
        "quick": _side_by_side("digits-s2"),
        "lite": _side_by_side("cifar10-s5-lite"),
        "paper": _side_by_side("cifar10-s5", "cifar10-s2"),
    },
    tables=("accuracy", "significance", "differences", "worst10", "communication"),
    reference="FedAvg+FT",
    figures=("client-accuracies",),  # curves of so many rows cannot be told apart
    ranked=True,
    on_request=("lite", "paper"),
    shows="All methods of this benchmark on one setting, ordered by accuracy.",
)

_RATES = Study(
    "methods-rates",
    "All methods at three learning rates, on a validation split",
    {"lite": Grid(_METHODS, at_rates(*validation("cifar10-s5-lite")))},
    tables=("rates",),
    on_request=("lite",),
    shows="All methods at three learning rates, compared without test data.",
)

_OWN_POINTS = Study(
    "methods-points",
    "All methods at hyper-parameters of their own, on a validation split",
    {"lite": Grid(with_points(_METHODS), validation("cifar10-s5-lite"))},
    tables=("points",),
    on_request=("lite",),
    shows="All methods at points of their own, compared without test data.",
)

_NATURAL = Study(
    "natural",
    "Natural users, and real letters",
    {"paper": _side_by_side("hapt", "shakespeare", "letters-s10")},
    tables=("accuracy", "significance", "worst10", "spread", "clients"),
    figures=("client-accuracies",),
    ranked=True,
    on_request=("paper",),
    shows="Methods on data of real users, who differ by themselves, not by a drawn partition.",
)

_NATURAL_RATES = Study(
    "natural-rates",
    "Natural users: Local Only and FedAvg at three learning rates, on a validation split",
    {
        "paper": Grid(
            tuple(row for row in _METHODS if row.algo in ("local", "fedavg")),
            (*_rates("hapt", 0.01, 0.03, 0.05), *_rates("shakespeare", 0.2, 0.3, 0.5)),
        )
    },
    tables=("accuracy",),
    on_request=("paper",),
    shows="Which learning rate suits data of real users, compared without test data.",
)

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        *(study for paper in offered("studies") for study in paper.STUDIES),
        _OWN,
        _RATES,
        _OWN_POINTS,
        _NATURAL,
        _NATURAL_RATES,
        *map(read_study, sorted((Path(__file__).parent / "files").glob("*.toml"))),
    )
}


def find_profile(name: str) -> Profile:
    """The profile of that name.

    Raises:
        UserError: unknown; suggests the nearest.
    """
    if name not in PROFILES:
        raise unknown("profile", name, PROFILES)
    return PROFILES[name]


def find_studies(names: Sequence[str] | None, profile: Profile) -> list[Study]:
    """The named studies in the catalogue's order; without names all but those on request.

    Raises:
        UserError: an unknown name, or a study that is not made at the scale of `profile`.
    """
    for name in names or ():
        if name not in STUDIES:
            raise unknown("study", name, STUDIES)
        if not STUDIES[name].belongs_to(profile):
            others = ", ".join(p.name for p in PROFILES.values() if STUDIES[name].belongs_to(p))
            raise UserError(f"there is no study {name} in the profile {profile.name}; it is in: {others}")
    return [
        study
        for study in STUDIES.values()
        if study.belongs_to(profile)
        and (study.name in names if names else profile.name not in study.on_request)
    ]
