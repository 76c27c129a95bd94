"""What reviewers ask for: paired tests with correction for their number, average ranks, spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

PandasT = TypeVar("PandasT", pd.Series, pd.DataFrame)
LEVEL = 0.05  # of significance
DIGITS = 9  # of accuracies and their differences: floats must not decide ties


@dataclass(frozen=True)
class Comparison:
    """One method of a column against the one that all are compared with.

    Attributes:
        pairs: clients × seeds that both have.
        difference: mean over the pairs of method minus reference.
        standard_error: of that mean, the pairs taken as independent (so of these seeds: others may differ by
            more); NaN of a single pair.
        direction: 1 if the signed ranks speak for `method`, -1 if for `reference`, else 0; where few clients
            gain much and many lose a little, not the sign of `difference`.
        p, p_holm: two-sided p-value, as it is and corrected for all comparisons of the column.
    """

    reference: str
    method: str
    pairs: int
    difference: float
    standard_error: float
    direction: int
    p: float
    p_holm: float

    @property
    def significant(self) -> bool:
        return self.p_holm < LEVEL

    @property
    def opposed(self) -> bool:
        """Whether a significant test speaks for the other side than the mean difference."""
        return self.significant and self.direction * self.difference < 0


def mean_and_std(values: Sequence[float] | np.ndarray) -> tuple[float, float | None]:
    """Mean and sample standard deviation (n − 1); None for the latter of a single value."""
    array = np.asarray(values, dtype=float)
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None


def wilcoxon(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Two-sided p-value of the Wilcoxon signed-rank test of paired values.

    Pairs that are equal keep their ranks, which no side gets (Pratt, 1959): accuracies of small test sets
    are often equal, and dropping those pairs would overstate what is left. All equal: 1.
    """
    difference = _differences(first, second)
    if not difference.any():
        return 1.0
    from scipy import stats  # takes a second to import

    return float(stats.wilcoxon(difference, zero_method="pratt").pvalue)


def direction(first: npt.ArrayLike, second: npt.ArrayLike) -> int:
    """Sign of the sum of signed ranks: 1 if `first` is mostly larger, -1 if `second` is, else 0."""
    from scipy import stats

    difference = _differences(first, second)
    return int(np.sign(np.sum(np.sign(difference) * stats.rankdata(np.abs(difference)))))


def _differences(first: npt.ArrayLike, second: npt.ArrayLike) -> np.ndarray:
    """Rounded: 0.3 − 0.2 and 0.2 − 0.1 are a tie, for which floats must not decide."""
    return (np.asarray(first, dtype=float) - np.asarray(second, dtype=float)).round(DIGITS)


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down correction (1979): p-values that may each be held against the same level."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    corrected, largest = [0.0] * len(values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[index]))
        corrected[index] = largest
    return corrected


def share_worse(ours: Mapping[Any, np.ndarray], theirs: Mapping[Any, np.ndarray]) -> float | None:
    """The share of clients whose value is below the one that they have otherwise; None without a pair.

    Args:
        ours, theirs: arrays of the same key are paired entry by entry (the clients of one seed and split).
    """
    below = [ours[key] < theirs[key] for key in ours if key in theirs]
    return float(np.concatenate(below).mean()) if below else None


def compare_with(samples: Mapping[str, Mapping[Any, np.ndarray]], reference: str) -> dict[str, Comparison]:
    """Test every method of a column against one of them.

    Args:
        samples: per method its values, one array for each key; arrays of the same key are paired entry by
            entry (the clients of one seed and split).

    Returns:
        By method; a method that has no key in common with the reference is left out.
    """
    pairs = {}
    for name, values in samples.items():
        common = [key for key in samples[reference] if key in values]
        if name != reference and common:
            sides = (values, samples[reference])
            pairs[name] = [np.concatenate([side[key] for key in common]) for side in sides]
    found = [wilcoxon(ours, theirs) for ours, theirs in pairs.values()]
    comparisons = {}
    for (name, (ours, theirs)), p, corrected in zip(pairs.items(), found, holm(found), strict=True):
        mean, std = mean_and_std(_differences(ours, theirs))
        mean = round(mean, 12) + 0.0  # no -7e-17 for differences that cancel, and no -0
        error = math.nan if std is None else std / math.sqrt(len(ours))
        comparisons[name] = Comparison(
            reference, name, len(ours), mean, error, direction(ours, theirs), p, corrected
        )
    return comparisons


def ranked(figures: PandasT) -> PandasT:
    """Ranks of methods, by column: 1 is the largest, ties share their mean and are not decided by floats."""
    return figures.round(DIGITS).rank(ascending=False)


def ranks_by_column(figures: pd.DataFrame) -> pd.DataFrame:
    """Ranks (1 is best, ties share their mean) by column, and their mean over columns as ``average``.

    Args:
        figures: methods × settings, larger is better, NaN where there is none.

    Methods without any figure are left out, then columns in which one of the others has none: ranks among
    different numbers of methods cannot be averaged.
    """
    complete = figures.dropna(how="all").dropna(axis=1)
    ranks = ranked(complete)
    ranks["average"] = ranks.mean(axis=1) if len(complete.columns) else np.nan
    return ranks
