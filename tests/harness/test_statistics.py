"""Tests and ranks against SciPy, against hand-computed numbers, and against what they must always obey."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmark.statistics import average_ranks, compare_with_best, holm, mean_and_std, wilcoxon

RNG = np.random.default_rng(0)


def test_wilcoxon_is_scipys_signed_rank_test():
    first, second = RNG.random(40), RNG.random(40)
    assert wilcoxon(first, second) == stats.wilcoxon(first, second).pvalue


def test_wilcoxon_by_hand():
    # Differences 1, 2, 3, 4, 5: the smallest rank sum is 0, as in 2 of the 2⁵ possible sign patterns.
    assert wilcoxon([2, 4, 6, 8, 10], [1, 2, 3, 4, 5]) == pytest.approx(2 / 32)


def test_equal_pairs_weaken_the_evidence():
    better = [0.9] * 10
    worse = [0.8] * 9 + [0.95]
    equal = [0.5] * 40
    assert wilcoxon(better + equal, worse + equal) > wilcoxon(better, worse)


def test_wilcoxon_of_equals_is_one():
    assert wilcoxon([0.3, 0.5], [0.1 + 0.2, 0.5]) == 1


def test_wilcoxon_does_not_care_for_order():
    first, second = RNG.random(30), RNG.random(30)
    assert wilcoxon(first, second) == pytest.approx(wilcoxon(second, first))


def test_holm_by_hand():
    # Sorted: .005·4 = .02, .01·3 = .03, .03·2 = .06, then max(.06, .04·1) = .06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_invariants():
    values = list(RNG.random(12) ** 4)
    corrected = holm(values)
    assert all(value <= fixed <= 1 for value, fixed in zip(values, corrected, strict=True))
    assert np.argsort(values).tolist() == np.argsort(corrected, kind="stable").tolist() or len(
        set(corrected)
    ) < len(corrected)
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


def test_comparison_pairs_only_what_both_have():
    values = {seed: RNG.random(10) for seed in (0, 1)}
    shifted = {seed: part - 0.2 for seed, part in values.items()}
    found = compare_with_best({"a": values, "b": {1: values[1] - 0.1}, "c": shifted}, "a")
    assert (found["b"].pairs, found["c"].pairs) == (10, 20)
    assert found["b"].difference == pytest.approx(0.1)
    raw = [stats.wilcoxon([0.1] * 10).pvalue, stats.wilcoxon([0.2] * 20).pvalue]
    assert [found["b"].p, found["c"].p] == pytest.approx(raw)
    assert [found["b"].p_holm, found["c"].p_holm] == pytest.approx([raw[0], 2 * raw[1]])
    assert found["c"].significant


def test_the_standard_error_is_that_of_the_mean_difference_over_pairs():
    ours, theirs = RNG.random((2, 12))
    (found,) = compare_with_best(
        {"a": {0: ours[:5], 1: ours[5:]}, "b": {0: theirs[:5], 1: theirs[5:]}}, "a"
    ).values()
    assert found.standard_error == pytest.approx(stats.sem(ours - theirs))
    (alone,) = compare_with_best({"a": {0: ours[:1]}, "b": {0: theirs[:1]}}, "a").values()
    assert np.isnan(alone.standard_error)


def test_comparison_leaves_out_methods_without_a_common_pair():
    assert compare_with_best({"a": {"x": np.array([0.5])}, "b": {"y": np.array([0.4])}}, "a") == {}


def test_average_ranks_by_hand():
    figures = pd.DataFrame(
        {"one": [0.9, 0.8, 0.8, np.nan], "two": [0.5, 0.7, 0.6, np.nan], "three": [0.1, np.nan, 0.3, np.nan]},
        index=list("abcd"),
    )
    ranks = average_ranks(figures)
    assert list(ranks.columns) == ["one", "two", "average"]  # "three" lacks b; d has nothing at all
    assert ranks["average"].to_dict() == {"a": 2.0, "b": 1.75, "c": 2.25}


def test_average_ranks_of_nothing():
    assert average_ranks(pd.DataFrame({"one": [np.nan]}, index=["a"])).empty


def test_mean_and_std():
    assert mean_and_std([0.5]) == (0.5, None)
    assert mean_and_std([1, 2, 3]) == (2.0, 1.0)
