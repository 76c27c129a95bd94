"""What the paper says of PPFE, to be tested on the runs of the other studies."""

from __future__ import annotations

from benchmark.papers.ppfe.studies.columns import DIRICHLET, DISTINCT, PLAIN, SIX
from benchmark.papers.ppfe.studies.printed import printed
from benchmark.papers.ppfe.studies.rows import BASELINES, FIXED_HEADS, PROGRESSION, REDUCTION, SPARSE
from benchmark.studies.grid import Claim, Grid, Study, Variant

__all__ = ["CLAIMS"]

_WP, _WPW, _PPFE = PROGRESSION

_ALL = (
    Claim("PPFE beats every other method", _PPFE, BASELINES, (printed("main"), printed("dirichlet"))),
    Claim("Model reduction helps", REDUCTION[0], REDUCTION[1:], (printed("no_mr"),)),
    Claim("SVD beats sparse reduction", SPARSE[0], SPARSE[1:], (printed("sparse"),)),
    Claim("PPFE beats every fixed head", _PPFE, FIXED_HEADS[:-1], (printed("fixed_heads"),)),
    Claim("Progression helps (PPFE over WP)", _PPFE, (_WP,), (printed("progression"),)),
    Claim("Reweighting helps (WP over WPW)", _WP, (_WPW,), (printed("progression"),)),
)


def _rows() -> tuple[Variant, ...]:
    rows = [row for claim in _ALL for row in (claim.better, *claim.others)]
    return tuple({row.title: row for row in rows}.values())


_COLUMNS = (*SIX, *PLAIN, *DISTINCT, *DIRICHLET)

CLAIMS = Study(
    "claims",
    "The paper's claims, tested",
    {"paper": Grid(_rows(), _COLUMNS)},
    tables=("claims",),
    claims=_ALL,
    borrows=True,
)
