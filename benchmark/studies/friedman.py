"""Comparisons over several settings by ranks: Demšar, "Statistical Comparisons of Classifiers over Multiple
Data Sets", JMLR 7, 2006.

Scores are arrays [blocks, methods], larger is better.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pfl_benchmark.errors import UserError
from pfl_benchmark.studies.statistics import DIGITS, LEVEL, direction, holm, wilcoxon


@dataclass(frozen=True)
class Friedman:
    """The test of the hypothesis that all methods are equal.

    Attributes:
        chi2, p_chi2: Friedman's statistic, corrected for ties, and its p-value with `methods` − 1 degrees of
            freedom.
        f: Iman and Davenport's statistic (1980) of it; infinite where all blocks have the same order.
        p: its p-value, with `methods` − 1 and (`methods` − 1)(`blocks` − 1) degrees of freedom; where `f` is
            infinite, methods!^(1 − blocks), the exact one.
    """

    blocks: int
    methods: int
    chi2: float
    p_chi2: float
    f: float
    p: float

    @property
    def significant(self) -> bool:
        return self.p < LEVEL


@dataclass(frozen=True)
class Pair:
    """Two methods, by their places.

    Attributes:
        direction: 1 if the signed ranks speak for the first, -1 if for the second, else 0.
        p, p_holm: of the Wilcoxon signed-rank test over blocks, and corrected for the pairs tested.
    """

    first: int
    second: int
    direction: int
    p: float
    p_holm: float

    @property
    def significant(self) -> bool:
        return self.p_holm < LEVEL


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Within each block; 1 is the best, ties share the mean of their ranks [blocks, methods]."""
    from scipy import stats

    return stats.rankdata(-scores.round(DIGITS), axis=1)


def average_ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks within blocks, averaged over these [methods]; 1 is the best, ties share their mean."""
    return _ranks(scores).mean(axis=0)


def friedman(scores: np.ndarray) -> Friedman:
    """Test whether methods differ at all.

    Raises:
        UserError: fewer than three methods or two blocks.
    """
    blocks, methods = scores.shape
    if methods < 3 or blocks < 2:
        raise UserError(
            f"the Friedman test needs three methods and two blocks; here are {methods} and {blocks}"
        )
    from scipy import stats

    ranks = _ranks(scores)
    if (ranks == ranks[:, :1]).all():  # the statistic is 0 / 0
        return Friedman(blocks, methods, 0.0, 1.0, 0.0, 1.0)
    found = stats.friedmanchisquare(*ranks.T)
    chi2, p_chi2 = float(found.statistic), float(found.pvalue)
    room = blocks * (methods - 1) - chi2
    if room <= 1e-9 * chi2:
        return Friedman(blocks, methods, chi2, p_chi2, math.inf, math.factorial(methods) ** (1.0 - blocks))
    f = (blocks - 1) * chi2 / room
    p = float(stats.f.sf(f, methods - 1, (methods - 1) * (blocks - 1)))
    return Friedman(blocks, methods, chi2, p_chi2, f, p)


def critical_difference(methods: int, blocks: int, level: float = LEVEL) -> float:
    """Difference of average ranks from which on two methods differ significantly (Nemenyi, 1963).

    q √(methods (methods + 1) / (6 blocks)), where q is the quantile of the studentized range with infinite
    degrees of freedom, divided by √2.
    """
    from scipy import stats

    quantile = float(stats.studentized_range.ppf(1 - level, methods, np.inf)) / math.sqrt(2)
    return quantile * math.sqrt(methods * (methods + 1) / (6 * blocks))


def groups(ranks: np.ndarray, distance: float) -> list[tuple[int, ...]]:
    """Methods that do not differ significantly: the lines of a critical-difference diagram.

    Args:
        ranks: average ranks [methods].
        distance: the critical difference.

    Returns:
        The places of the methods of each group, best rank first; groups of two or more, none within another.
    """
    order = [int(place) for place in np.argsort(ranks, kind="stable")]
    found: list[tuple[int, ...]] = []
    last = 0
    for start in range(len(order)):
        end = start
        while end < len(order) and ranks[order[end]] - ranks[order[start]] < distance:
            end += 1
        if end - start > 1 and end > last:
            found.append(tuple(order[start:end]))
            last = end
    return found


def pairs(scores: np.ndarray, control: int | None = None) -> list[Pair]:
    """Wilcoxon tests over blocks, Holm-corrected: every method against every other.

    Against `control` alone, the column of a method that was chosen beforehand, if there is one.
    """
    columns = itertools.combinations(range(scores.shape[1]), 2)
    tested = [pair for pair in columns if control is None or control in pair]
    values = [wilcoxon(scores[:, one], scores[:, other]) for one, other in tested]
    return [
        Pair(one, other, direction(scores[:, one], scores[:, other]), p, corrected)
        for (one, other), p, corrected in zip(tested, values, holm(values), strict=True)
    ]


def least_p(blocks: int, comparisons: Sequence[Pair]) -> float:
    """The smallest corrected p-value that so many blocks can give: all of them of one sign."""
    return min(1.0, len(comparisons) * 2.0 ** (1 - blocks))
