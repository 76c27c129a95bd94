"""The studies of the paper, as data: what is run for every table and figure of the paper.

Counted in `Grid`s of methods × settings; runs that two studies have in common are run once.
"""

from __future__ import annotations

from pfl_benchmark.papers.ppfe.studies.budgets import BUDGETS
from pfl_benchmark.papers.ppfe.studies.claims import CLAIMS
from pfl_benchmark.papers.ppfe.studies.columns import (
    BY_CLASSES,
    BY_SIZE,
    DIGITS,
    DIGITS_DIRICHLET,
    DIRICHLET,
    DISTINCT,
    LITE_DIRICHLET,
    LITE_SIX,
    SIX,
    SYNTHETIC_TWEETS,
)
from pfl_benchmark.papers.ppfe.studies.computed import Kept
from pfl_benchmark.papers.ppfe.studies.newcomers import NEW_CLIENTS
from pfl_benchmark.papers.ppfe.studies.prediction import PREDICTION
from pfl_benchmark.papers.ppfe.studies.printed import printed
from pfl_benchmark.papers.ppfe.studies.protocol import CALIBRATION, OWN_POINTS, PROTOCOLS, RATES, TUNING
from pfl_benchmark.papers.ppfe.studies.rows import (
    FEW_METHODS,
    FIXED_HEADS,
    METHODS,
    PREVIOUS,
    PROGRESSION,
    REDUCTION,
    SPARSE,
)
from pfl_benchmark.papers.ppfe.studies.switches import READINGS, SWITCHES, TUNED
from pfl_benchmark.papers.ppfe.studies.targets import TARGETS
from pfl_benchmark.studies.grid import Column, Grid, Study, Variant

__all__ = ["STUDIES"]


def _ablation(rows: tuple[Variant, ...]) -> dict[str, Grid]:
    return {"quick": Grid(rows, DIGITS), "lite": Grid(rows, LITE_SIX), "paper": Grid(rows, SIX)}


def _sweep(columns: dict[str, tuple[Column, ...]]) -> dict[str, Grid]:
    """All methods at the paper's scale, a few at the smaller ones."""
    return {
        profile: Grid(METHODS if profile == "paper" else FEW_METHODS, found)
        for profile, found in columns.items()
    }


_MAIN = {
    "quick": Grid(METHODS, (*DIGITS, SYNTHETIC_TWEETS)),
    "lite": Grid(METHODS, LITE_SIX),
    "paper": Grid(METHODS, SIX),
}

STUDIES = (
    Study(
        "main",
        "Test accuracy under heterogeneous federated settings",
        _MAIN,
        tables=(
            "accuracy",
            "significance",
            "ranks",
            "over-settings",
            "worst10",
            "spread",
            "best-round",
            "stages",
        ),
        figures=("learning-curves", "client-accuracies", "ppfe-stages"),
        highlight="PPFE",
        paper=printed("main"),
        shows="Accuracy of every method of the paper's main table, beside the paper's figures.",
    ),
    CLAIMS,
    Study(
        "distinct",
        "Test accuracy with distinct classes and no augmentation",
        {"paper": Grid((*METHODS, PREVIOUS, SPARSE[1], FIXED_HEADS[0]), DISTINCT)},
        tables=("accuracy", "significance", "worst10", "spread", "stages"),
        figures=("learning-curves", "client-accuracies", "ppfe-stages"),
        highlight="PPFE",
        paper=printed("main"),
        shows=(
            "The main table again where every client gets exactly its number of classes and "
            "images are not augmented."
        ),
    ),
    Study(
        "sparse",
        "PPFE with low-rank (SVD) and with sparse reduction",
        _ablation(SPARSE),
        tables=("accuracy", "significance", "stages"),
        paper=printed("sparse"),
        shows="Whether PPFE should shrink its shared layers by low rank or by dropping weights.",
    ),
    Study(
        "dirichlet",
        "Test accuracy under Dirichlet splits",
        {
            "quick": Grid(METHODS, DIGITS_DIRICHLET),
            "lite": Grid(METHODS, LITE_DIRICHLET),
            "paper": Grid((*METHODS, PREVIOUS), DIRICHLET),
        },
        tables=("accuracy", "significance", "best-round"),
        paper=printed("dirichlet"),
        settings_as_rows=True,
        shows=(
            "Accuracy where class shares are drawn from a Dirichlet distribution: the "
            "smaller α, the more clients differ."
        ),
    ),
    Study(
        "reduction",
        "PPFE with and without model reduction (MR)",
        _ablation(REDUCTION),
        tables=("accuracy", "significance", "stages"),
        paper=printed("no_mr"),
        settings_as_rows=True,
        shows="What PPFE loses or gains in accuracy when its shared layers are sent whole.",
    ),
    Study(
        "fixed-heads",
        "PPFE against heads of fixed depth: M1, M2, M3 have one, two, three personal layers",
        _ablation(FIXED_HEADS),
        paper=printed("fixed_heads"),
        settings_as_rows=True,
        shows="Whether PPFE's growing personal part beats a personal part of fixed depth.",
    ),
    Study(
        "progression",
        "PPFE without progressive personalization (WP), and without sample reweighting as well (WPW)",
        _ablation(PROGRESSION),
        tables=("accuracy", "significance", "stages"),
        paper=printed("progression"),
        settings_as_rows=True,
        shows="What is left of PPFE's accuracy without its stages, and without its sample weights.",
    ),
    Study(
        "data-size",
        "Test accuracy by training samples per client",
        _sweep(BY_SIZE),
        figures=("sweep",),
        highlight="PPFE",
        axis="training samples per client",
        shows="How accuracy grows with the training samples that each client has.",
    ),
    Study(
        "heterogeneity",
        "Test accuracy by classes per client",
        _sweep(BY_CLASSES),
        figures=("sweep",),
        highlight="PPFE",
        axis="classes per client S (at most)",
        shows="How accuracy changes with the classes that each client has.",
    ),
    Study(
        "synthetic",
        "Synthetic linear data: test error of closed-form estimators",
        tables=(),
        computed=Kept("synthetic", "pfl_benchmark.papers.ppfe.studies.synthetic"),
        shows="Ridge regressions with known optimum: when sharing a layer helps, and when it harms.",
    ),
    Study(
        "communication",
        "Bytes by method and stage",
        _MAIN,
        tables=("stages-sent",),
        figures=("accuracy-bytes", "accuracy-samples"),
        highlight="PPFE",
        shows="What each method sends and computes for its accuracy, stage by stage.",
    ),
    BUDGETS,
    TARGETS,
    NEW_CLIENTS,
    PREDICTION,
    CALIBRATION,
    PROTOCOLS,
    TUNING,
    RATES,
    OWN_POINTS,
    TUNED,
    SWITCHES,
    READINGS,
)
