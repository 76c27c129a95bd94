"""All studies, as data: what is run for every table and figure of the paper.

Counted in `Grid`s of methods × settings; cells that two studies have in common are run once.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.errors import UserError, unknown
from benchmark.studies.claims import CLAIMS
from benchmark.studies.columns import (
    DIGITS,
    DIGITS_DIRICHLET,
    DIRICHLET,
    DISTINCT,
    SIX,
    SYNTHETIC_TWEETS,
    classes,
    sizes,
)
from benchmark.studies.grid import Grid, Profile, Study, Variant
from benchmark.studies.protocol import CALIBRATION, OWN_POINTS, PROTOCOLS, RATES, TUNING
from benchmark.studies.rows import FEW_METHODS, FIXED_HEADS, METHODS, PROGRESSION, REDUCTION, SPARSE
from benchmark.studies.switches import READINGS, SWITCHES, TUNED

__all__ = ["PROFILES", "STUDIES", "find_profile", "find_studies"]

PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "quick",
            seeds=(0,),
            warning="A check of the machinery on small data, not the paper's result.",
        ),
        Profile("paper", seeds=(0, 1, 2)),
    )
}


def _ablation(rows: tuple[Variant, ...]) -> dict[str, Grid]:
    return {"quick": Grid(rows, DIGITS), "paper": Grid(rows, SIX)}


_ALL = (
    Study(
        "main",
        "Test accuracy under heterogeneous federated settings",
        {"quick": Grid(METHODS, (*DIGITS, SYNTHETIC_TWEETS)), "paper": Grid(METHODS, SIX)},
        tables=("accuracy", "significance", "ranks", "worst10", "spread", "best-round", "stages"),
        figures=("learning-curves", "client-accuracies", "ppfe-stages"),
        paper="main",
    ),
    CLAIMS,
    Study(
        "distinct",
        "Test accuracy with distinct classes and no augmentation",
        {"paper": Grid((*METHODS, SPARSE[1], FIXED_HEADS[0]), DISTINCT)},
        tables=("accuracy", "significance", "worst10", "spread", "stages"),
        figures=("learning-curves", "client-accuracies", "ppfe-stages"),
        paper="main",
    ),
    Study(
        "sparse",
        "PPFE with low-rank (SVD) and with sparse reduction",
        _ablation(SPARSE),
        tables=("accuracy", "significance", "stages"),
        paper="sparse",
    ),
    Study(
        "dirichlet",
        "Test accuracy under Dirichlet splits",
        {"quick": Grid(METHODS, DIGITS_DIRICHLET), "paper": Grid(METHODS, DIRICHLET)},
        tables=("accuracy", "significance", "best-round"),
        paper="dirichlet",
        settings_as_rows=True,
    ),
    Study(
        "reduction",
        "PPFE with and without model reduction (MR)",
        _ablation(REDUCTION),
        tables=("accuracy", "significance", "stages"),
        paper="no_mr",
        settings_as_rows=True,
    ),
    Study(
        "fixed-heads",
        "PPFE against heads of fixed depth: M1, M2, M3 have one, two, three personal layers",
        _ablation(FIXED_HEADS),
        paper="fixed_heads",
        settings_as_rows=True,
    ),
    Study(
        "progression",
        "PPFE without progressive personalization (WP), and without sample reweighting as well (WPW)",
        _ablation(PROGRESSION),
        tables=("accuracy", "significance", "stages"),
        paper="progression",
        settings_as_rows=True,
    ),
    Study(
        "data-size",
        "Test accuracy by training samples per client",
        {
            "quick": Grid(FEW_METHODS, sizes("digits-s2", (20, 40, 60))),
            "paper": Grid(METHODS, sizes("cifar100-s5", (100, 200, 300, 400, 500))),
        },
        figures=("sweep",),
        axis="training samples per client",
    ),
    Study(
        "heterogeneity",
        "Test accuracy by classes per client",
        {
            "quick": Grid(FEW_METHODS, classes("digits-s2", (2, 5, 10))),
            "paper": Grid(METHODS, classes("cifar100-s5", (5, 10, 20, 40))),
        },
        figures=("sweep",),
        axis="classes per client S (at most)",
    ),
    Study(
        "synthetic",
        "Synthetic linear data: test error of closed-form estimators",
        tables=(),
        computed="benchmark.studies.synthetic",
    ),
    Study(
        "communication",
        "Bytes by method and stage",
        {"quick": Grid(METHODS, (*DIGITS, SYNTHETIC_TWEETS)), "paper": Grid(METHODS, SIX)},
        tables=("communication",),
        figures=("accuracy-bytes", "accuracy-samples"),
    ),
    CALIBRATION,
    PROTOCOLS,
    TUNING,
    RATES,
    OWN_POINTS,
    TUNED,
    SWITCHES,
    READINGS,
)
STUDIES = {study.name: study for study in _ALL}


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
        if study.belongs_to(profile) and (study.name in names if names else not study.on_request)
    ]
