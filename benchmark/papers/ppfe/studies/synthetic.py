"""The synthetic linear study as a study among the others (`benchmark.studies.computed`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from benchmark.papers.ppfe.synthetic.model import NOISE_VARIANCE
from benchmark.papers.ppfe.synthetic.study import METHODS, PROFILES, run_studies
from benchmark.present.tables.table import MISSING, Table, tex
from benchmark.studies.grid import Profile
from benchmark.studies.statistics import mean_and_std

if TYPE_CHECKING:
    from benchmark.present.figures import Picture

__all__ = ["PACKAGE", "TEXT", "compute", "figures", "tables"]

PACKAGE = "benchmark.papers.ppfe.synthetic"
TEXT = ("r_p",)


def compute(profile: str, seeds: Sequence[int] | None) -> pd.DataFrame:
    """Test errors of all points, methods and seeds."""
    chosen = PROFILES[profile]
    return run_studies(chosen, range(chosen.seeds) if seeds is None else seeds)


def tables(numbers: pd.DataFrame, profile: Profile) -> list[Table]:
    """Test error of every method at every point."""
    data: list[dict[str, Any]] = []
    lines: list[dict[str, str]] = []
    latex: list[dict[str, str]] = []
    rules: list[int] = []
    for (study, clients, ratio), rows in numbers.groupby(["study", "clients", "r_p"], sort=False):
        if lines and study != data[-1]["study"]:
            rules.append(len(lines))
        point = {"K": str(clients), "r_p": str(ratio), "n_k": str(rows["samples"].iloc[0])}
        figures = {
            method: mean_and_std(own["mse"].tolist())
            for method, own in rows.groupby("method")
            if method in METHODS
        }
        best = min(round(mean, 3) for mean, _ in figures.values())
        texts, codes = dict(point), {name: tex(text) for name, text in point.items()}
        for method, title in METHODS.items():
            if method not in figures:
                texts[title] = codes[title] = MISSING
                continue
            mean, std = figures[method]
            text = f"{mean:.3f}" + (f" ± {std:.3f}" if std is not None else "")
            is_best = round(mean, 3) == best
            texts[title] = f"**{text}**" if is_best else text
            codes[title] = rf"\textbf{{{tex(text)}}}" if is_best else tex(text)
            data.append(
                {
                    "study": study,
                    **point,
                    "method": title,
                    "mean": mean,
                    "std": std,
                    "seeds": int((rows["method"] == method).sum()),
                }
            )
        lines.append(texts)
        latex.append(codes)
    seeds = sorted(set(numbers["seed"]))
    many = "Mean ± sample standard deviation over the seeds" if len(seeds) > 1 else "Seed"
    caption = (
        f"{profile.warning} Mean squared test error of ridge regressions, mean over clients; smaller is "
        f"better, bold: smallest of its row. Noise floor: {NOISE_VARIANCE:g}. K clients, personalization "
        f"ratio r_p, n_k training samples each. {many} {', '.join(map(str, seeds))}. The paper prints no "
        "numbers for this study."
    )
    return [
        Table(
            name="synthetic",
            title="Synthetic linear data: test error of closed-form estimators",
            caption=caption.strip(),
            notes=(),
            data=pd.DataFrame(data),
            shown=pd.DataFrame(lines),
            latex=pd.DataFrame(latex).rename(columns=tex),
            rules=tuple(rules),
        )
    ]


def figures(numbers: pd.DataFrame, profile: Profile) -> list[Picture]:
    """Test error by number of clients and by personalization ratio."""
    from benchmark.papers.ppfe.synthetic.figures import clients_picture, ratio_picture

    return [
        dataclasses.replace(
            picture,
            name=f"synthetic-{picture.name}",
            caption=" ".join(part for part in (profile.warning, picture.caption) if part),
        )
        for picture in (clients_picture(numbers), ratio_picture(numbers))
    ]
