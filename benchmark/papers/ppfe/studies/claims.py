"""What the paper says of PPFE, to be tested on the runs of the other studies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pfl_benchmark.config.run_config import RunConfig
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.papers.ppfe.studies.shared import METHODS, columns, printed, rows, study
from pfl_benchmark.studies.grid import Column, Grid, Study, Variant
from pfl_benchmark.studies.printed import PrintedTable


@dataclass(frozen=True)
class Claim:
    """Something that the paper says: that one row is better than each of some others.

    Attributes:
        papers: printed tables that say so; of a column the first that has it counts.
    """

    text: str
    better: Variant
    others: tuple[Variant, ...]
    papers: tuple[PrintedTable, ...]


@dataclass(frozen=True)
class ClaimsStudy(Study):
    """A study whose table tests claims."""

    claims: tuple[Claim, ...] = ()


_BASELINES, _PPFE = METHODS[:-1], METHODS[-1]
_WP, _WPW, _WITH, _SVD, _PREVIOUS = rows("WP", "WPW", "With MR", "PPFE (SVD)", "PPFE (prev)")
_WITHOUT, _SPARSE, _FIXED_HEADS = rows("Without MR"), rows("PPFE (Sparse)"), rows("M1", "M2", "M3")
# Sparse reduction keeps the shapes, so its stages begin with the previous model; here SVD's do, too.
_SVD_AS_SPARSE = replace(_PREVIOUS, title="PPFE (SVD, prev)", paper="PPFE (SVD)")

_ALL = (
    Claim("PPFE beats every other method", _PPFE, _BASELINES, (printed("main"), printed("dirichlet"))),
    Claim("Model reduction helps", _WITH, _WITHOUT, (printed("no_mr"),)),
    Claim("SVD beats sparse reduction", _SVD, _SPARSE, (printed("sparse"),)),
    Claim("SVD beats sparse, equal starts", _SVD_AS_SPARSE, _SPARSE, (printed("sparse"),)),
    Claim("PPFE beats every fixed head", _PPFE, _FIXED_HEADS, (printed("fixed_heads"),)),
    Claim("Progression helps (PPFE over WP)", _PPFE, (_WP,), (printed("progression"),)),
    Claim("Reweighting helps (WP over WPW)", _WP, (_WPW,), (printed("progression"),)),
)


def _rows() -> tuple[Variant, ...]:
    rows = [row for claim in _ALL for row in (claim.better, *claim.others)]
    return tuple({row.title: row for row in rows}.values())


def _grid(profile: str, *names: str) -> Grid:
    """Some columns and the points of both sweeps, with titles of their own, that are not among them."""
    found = columns(*names)
    known = [_values(column) for column in found]
    points = []
    for column in (
        each for sweep in ("data-size", "heterogeneity") for each in study(sweep).grids[profile].columns
    ):
        values = _values(column)
        if values in known:
            continue
        dataset, clients = SETTINGS[column.setting].title.partition(" (")[0], RunConfig(**values).clients
        title = f"{dataset} ({clients}, {values['classes_per_client']})"
        if "samples_per_client" in column.changes:
            title += f", {values['samples_per_client']} training samples"
        points.append(replace(column, title=title))
    return Grid(_rows(), (*found, *points))


def _values(column: Column) -> dict[str, Any]:
    return {**SETTINGS[column.setting].values, **column.changes}


CLAIMS = ClaimsStudy(
    "claims",
    "The paper's claims, tested",
    {
        "lite": _grid("lite", "lite_six", "lite_dirichlet"),
        "paper": _grid("paper", "six", "plain", "distinct", "dirichlet"),
    },
    tables=("claims",),
    claims=_ALL,
    borrows=True,
    shows=(
        "Each claim of the paper as a test: what it says, what is found here, and "
        "whether the data support it."
    ),
)
