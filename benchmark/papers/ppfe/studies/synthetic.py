"""The synthetic linear study as a study among the others (`papers.ppfe.studies.computed`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from pfl_benchmark.papers.ppfe.synthetic.model import NOISE_VARIANCE
from pfl_benchmark.papers.ppfe.synthetic.study import METHODS, PROFILES, run_studies
from pfl_benchmark.present.tables.places import rules_between
from pfl_benchmark.render.table import Cell, Head, Plain, Table
from pfl_benchmark.studies.grid import Profile
from pfl_benchmark.studies.statistics import mean_and_std

if TYPE_CHECKING:
    from pfl_benchmark.render.picture import Picture

PACKAGE = "pfl_benchmark.papers.ppfe.synthetic"
TEXT = ("r_p",)


def compute(profile: str, seeds: Sequence[int] | None) -> pd.DataFrame:
    """Test errors of all points, methods and seeds."""
    chosen = PROFILES[profile]
    return run_studies(chosen, range(chosen.seeds) if seeds is None else seeds)


def tables(numbers: pd.DataFrame, profile: Profile) -> list[Table]:
    """Test error of every method at every point."""
    rows: list[tuple[Cell, ...]] = []
    studies: list[str] = []
    for (study, clients, ratio), own in numbers.groupby(["study", "clients", "r_p"], sort=False):
        studies.append(str(study))
        point = {"K": str(clients), "r_p": str(ratio), "n_k": str(own["samples"].iloc[0])}
        errors = {str(method): mean_and_std(found["mse"].tolist()) for method, found in own.groupby("method")}
        facts: dict[str, Plain] = {"study": str(study), **point, "seeds": own["seed"].nunique()}
        rows.append((*map(Cell, point.values()), *error_cells(errors, facts)))
    seeds = sorted(set(numbers["seed"]))
    many = "Mean ± sample standard deviation over the seeds" if len(seeds) > 1 else "Seed"
    caption = (
        f"{profile.warning} Mean squared test error of ridge regressions, mean over clients; smaller is "
        f"better, bold: smallest of its row. Noise floor: {NOISE_VARIANCE:g}. K clients, personalization "
        f"ratio r_p, n_k training samples each. {many} {', '.join(map(str, seeds))}. The paper prints no "
        "numbers for this study, and has no FedAvg+FT in it. λ is chosen on the validation data of all "
        "clients; own λ: by each client on its own."
    )
    return [
        Table(
            name="synthetic",
            title="Synthetic linear data: test error of closed-form estimators",
            caption=caption.strip(),
            heads=tuple(map(Head, ("K", "r_p", "n_k", *METHODS.values()))),
            rows=tuple(rows),
            rules=rules_between(studies),
            fields=("study", "K", "r_p", "n_k", "method", "mean", "std", "seeds"),
            line="cell",
        )
    ]


def error_cells(
    errors: Mapping[str, tuple[float, float | None]], facts: Mapping[str, Plain] | None = None
) -> list[Cell]:
    """A cell for each of `METHODS`, the smallest mean as printed marked.

    Args:
        errors: mean and deviation over seeds by method, for those that are there.
        facts: of the point.
    """
    best = min(round(errors[method][0], 3) for method in METHODS if method in errors)
    cells = []
    for method, title in METHODS.items():
        if method not in errors:
            cells.append(Cell())
            continue
        mean, std = errors[method]
        own = {**(facts or {}), "method": title, "mean": mean, "std": std}
        cells.append(Cell(mean, ".3f", deviation=std, best=round(mean, 3) == best, facts=own))
    return cells


def figures(numbers: pd.DataFrame, profile: Profile) -> list[Picture]:
    """Test error by number of clients and by personalization ratio."""
    from pfl_benchmark.papers.ppfe.synthetic.figures import clients_picture, ratio_picture

    return [
        replace(picture, name=f"synthetic-{picture.name}", caption=profile.warned(picture.caption))
        for picture in (clients_picture(numbers), ratio_picture(numbers))
    ]
