"""What the paper says of PPFE, to be tested on the runs of the other studies."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pfl_benchmark.papers.ppfe.studies.columns import (
    DIRICHLET,
    DISTINCT,
    LITE_DIRICHLET,
    LITE_SIX,
    PLAIN,
    SIX,
    sweep_points,
)
from pfl_benchmark.papers.ppfe.studies.printed import printed
from pfl_benchmark.papers.ppfe.studies.rows import (
    BASELINES,
    FIXED_HEADS,
    PREVIOUS,
    PROGRESSION,
    REDUCTION,
    SPARSE,
)
from pfl_benchmark.studies.grid import Grid, Study, Variant
from pfl_benchmark.studies.printed import PrintedTable

__all__ = ["CLAIMS", "Claim", "ClaimsStudy"]


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


_WP, _WPW, _PPFE = PROGRESSION
# Sparse reduction keeps the shapes, so its stages begin with the previous model; here SVD's do, too.
_SVD_AS_SPARSE = replace(PREVIOUS, title="PPFE (SVD, prev)", paper="PPFE (SVD)")

_ALL = (
    Claim("PPFE beats every other method", _PPFE, BASELINES, (printed("main"), printed("dirichlet"))),
    Claim("Model reduction helps", REDUCTION[0], REDUCTION[1:], (printed("no_mr"),)),
    Claim("SVD beats sparse reduction", SPARSE[0], SPARSE[1:], (printed("sparse"),)),
    Claim("SVD beats sparse, equal starts", _SVD_AS_SPARSE, SPARSE[1:], (printed("sparse"),)),
    Claim("PPFE beats every fixed head", _PPFE, FIXED_HEADS[:-1], (printed("fixed_heads"),)),
    Claim("Progression helps (PPFE over WP)", _PPFE, (_WP,), (printed("progression"),)),
    Claim("Reweighting helps (WP over WPW)", _WP, (_WPW,), (printed("progression"),)),
)


def _rows() -> tuple[Variant, ...]:
    rows = [row for claim in _ALL for row in (claim.better, *claim.others)]
    return tuple({row.title: row for row in rows}.values())


_COLUMNS = {
    "lite": (*LITE_SIX, *LITE_DIRICHLET),
    "paper": (*SIX, *PLAIN, *DISTINCT, *DIRICHLET),
}

CLAIMS = ClaimsStudy(
    "claims",
    "The paper's claims, tested",
    {
        profile: Grid(_rows(), (*columns, *sweep_points(profile, columns)))
        for profile, columns in _COLUMNS.items()
    },
    tables=("claims",),
    claims=_ALL,
    borrows=True,
    shows=(
        "Each claim of the paper as a test: what it says, what is found here, and "
        "whether the data support it."
    ),
)
