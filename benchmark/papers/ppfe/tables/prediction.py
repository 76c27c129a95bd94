"""Tables that hold runs at a reduced scale against those at the paper's scale."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.stats import spearmanr

from pfl_benchmark.papers.ppfe.studies.claims import CLAIMS
from pfl_benchmark.papers.ppfe.studies.shared import METHODS, columns
from pfl_benchmark.papers.ppfe.tables.claims import find_claim
from pfl_benchmark.records.store import Store
from pfl_benchmark.render.forms import signed
from pfl_benchmark.render.table import Cell, Head, Plain, Table
from pfl_benchmark.studies.grid import Column, Grid, Profile, Variant
from pfl_benchmark.studies.profiles import PROFILES
from pfl_benchmark.studies.results import Results, collect

_PAPER = PROFILES["paper"]
_PAIRS = tuple(zip(columns("lite_six", "lite_dirichlet"), columns("six", "dirichlet"), strict=True))


def rank_correlations(profile: Profile, here: Store, there: Store) -> Table:
    """Of each column that both scales have: Spearman's correlation of methods' mean accuracies."""
    rows = []
    for column, papers, ours, theirs in _pairs(METHODS, profile, here, there):
        means = ours.means()[column.title], theirs.means()[papers.title]
        common = [row for row in ours.rows if not np.isnan(means[0][row]) and not np.isnan(means[1][row])]
        if len(common) < 3:
            continue
        small, large = (mean[common] for mean in means)
        rho = float(spearmanr(small, large).statistic)
        best = str(small.idxmax()), str(large.idxmax())
        facts: dict[str, Plain] = {
            "lite": column.title,
            "paper": papers.title,
            "methods": len(common),
            "spearman": rho,
        }
        facts |= {"best_lite": best[0], "best_paper": best[1]}
        cells = (Cell(column.title, facts=facts), Cell(papers.title), Cell(len(common)))
        rows.append((*cells, Cell(rho, ".2f"), *map(Cell, best)))
    words = (Head("reduced scale", words=True), Head("paper's scale", words=True))
    tops = (Head("best, reduced", words=True), Head("best, paper's scale", words=True))
    return Table(
        name="prediction",
        title="Rank correlation of methods between the two scales",
        caption=(
            "Spearman's rank correlation of the methods' test accuracies after the last round, means over "
            "the seeds that each scale has. 1: the same order; 0: no relation. Columns with fewer than three "
            "methods at both scales are left out."
        ),
        heads=(*words, Head("methods"), Head("Spearman's ρ"), *tops),
        rows=tuple(rows),
    )


def claim_signs(profile: Profile, here: Store, there: Store) -> Table:
    """Of each claim and column that both scales have: whether the differences have the same sign."""
    rows, same = [], 0
    variants = CLAIMS.grid(profile).variants
    for column, papers, ours, theirs in _pairs(variants, profile, here, there):
        for claim in CLAIMS.claims:
            small, large = find_claim(ours, claim, column), find_claim(theirs, claim, papers)
            if small is None or large is None:
                continue
            agree = small.difference * large.difference > 0
            same += agree
            facts: dict[str, Plain] = {"claim": claim.text, "lite": column.title, "paper": papers.title}
            facts["same_sign"] = agree
            facts |= {"lite_difference": 100 * small.difference, "paper_difference": 100 * large.difference}
            verdicts = (Cell(f"{signed(found.difference)} {found.verdict}") for found in (small, large))
            cells = (Cell(claim.text, facts=facts), Cell(column.title), *verdicts)
            rows.append((*cells, Cell("yes" if agree else "no")))
    return Table(
        name="prediction-claims",
        title="Claims at the two scales",
        caption=(
            f"{same} of {len(rows)} differences have the same sign at both scales. Differences in percentage "
            "points and verdicts as in the table of claims, each scale with its own seeds."
        ),
        heads=(
            Head("claim", words=True),
            Head("setting, reduced", words=True),
            Head("reduced scale"),
            Head("paper's scale"),
            Head("same sign", words=True),
        ),
        rows=tuple(rows),
    )


def _pairs(
    rows: tuple[Variant, ...], profile: Profile, here: Store, there: Store
) -> Iterator[tuple[Column, Column, Results, Results]]:
    """Reduced column, the paper's column, and the records of each."""
    for column, papers in _PAIRS:
        study = replace(
            CLAIMS, grids={profile.name: Grid(rows, (column,)), _PAPER.name: Grid(rows, (papers,))}
        )
        yield column, papers, collect(study, profile, here, None), collect(study, _PAPER, there, None)
