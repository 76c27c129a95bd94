"""Ranks and tests over settings against a published example, scipy, enumeration and figures by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from pfl_benchmark.errors import UserError
from pfl_benchmark.studies.friedman import (
    average_ranks,
    critical_difference,
    friedman,
    groups,
    least_p,
    pairs,
)
from pfl_benchmark.studies.statistics import holm, wilcoxon

# Demšar (2006), table 6: AUC of C4.5 on 14 data sets, plain and with two parameters tuned (m, cf, both).
# Voting has 0.975 twice in print, but ranks 2 and 3: the figures are rounded.
AUC = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.97501, 0.975],
        [0.957, 0.978, 0.946, 0.970],
    ]
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_the_published_example():
    """The paper's figures; its χ² is not corrected for ties, which are 78 / 840 of the variance here."""
    assert average_ranks(AUC) == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    found = friedman(AUC)
    uncorrected = found.chi2 * (1 - 78 / 840)
    assert uncorrected == pytest.approx(9.28, abs=0.005)
    assert 13 * uncorrected / (14 * 3 - uncorrected) == pytest.approx(3.69, abs=0.005)
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    assert critical_difference(4, 14, level=0.10) == pytest.approx(1.12, abs=0.005)


def test_the_published_groups():
    """At 0.05 no pair differs; at 0.10 plain C4.5 is worse than with m, and than with both."""
    ranks = average_ranks(AUC)
    assert groups(ranks, critical_difference(4, 14)) == [(3, 1, 2, 0)]
    assert groups(ranks, critical_difference(4, 14, level=0.10)) == [(3, 1, 2), (2, 0)]


# The paper's table 5: quantiles of the studentized range, divided by √2.
@pytest.mark.parametrize(
    ("methods", "quantile"), [(2, 1.960), (3, 2.343), (5, 2.728), (7, 2.949), (10, 3.164)]
)
def test_published_critical_values(methods, quantile):
    scale = math.sqrt(methods * (methods + 1) / (6 * 11))
    assert critical_difference(methods, 11) == pytest.approx(quantile * scale, abs=1e-3)


def test_friedman_by_scipy_and_by_its_formula(rng):
    scores = rng.random((9, 5))
    found = friedman(scores)
    theirs = stats.friedmanchisquare(*scores.T)
    assert (found.chi2, found.p_chi2) == pytest.approx((theirs.statistic, theirs.pvalue))
    ranks = np.array([[sum(other >= own for other in row) for own in row] for row in scores]).mean(axis=0)
    assert average_ranks(scores) == pytest.approx(ranks)
    chi2 = 12 * 9 / (5 * 6) * ((ranks**2).sum() - 5 * 6**2 / 4)
    assert found.chi2 == pytest.approx(chi2)
    assert found.f == pytest.approx(8 * chi2 / (9 * 4 - chi2))
    assert found.p == pytest.approx(1 - stats.f.cdf(found.f, 4, 32))


def test_blocks_of_one_order_have_the_exact_p():
    """Of the orders of three methods on three blocks, one in 6² is the same on all."""
    found = friedman(np.array([[0.1, 0.2, 0.3]] * 3))
    assert math.isinf(found.f)
    assert found.p == pytest.approx(1 / 36)
    everything = itertools.product(itertools.permutations([1, 2, 3]), repeat=3)
    same = [len(set(orders)) == 1 for orders in everything]
    assert found.p == pytest.approx(np.mean(same))


def test_equal_methods_do_not_differ():
    found = friedman(np.full((4, 3), 0.5))
    assert (found.chi2, found.f, found.p, found.significant) == (0, 0, 1, False)
    assert average_ranks(np.full((4, 3), 0.5)).tolist() == [2, 2, 2]


def test_floats_do_not_decide_ranks():
    assert average_ranks(np.array([[0.3, 0.1 + 0.2, 0.1]])).tolist() == [1.5, 1.5, 3]


def test_p_is_uniform_where_methods_are_equal():
    """The share of rejections at 0.05, over simulated comparisons."""
    rng = np.random.default_rng(1)
    rejected = [friedman(rng.random((12, 4))).significant for _ in range(600)]
    assert 0.025 < np.mean(rejected) < 0.08


@pytest.mark.parametrize("shape", [(5, 2), (1, 4), (0, 3)])
def test_too_few_for_friedman(shape):
    with pytest.raises(UserError, match="three methods and two blocks"):
        friedman(np.zeros(shape))


def test_groups_by_hand():
    ranks = np.array([1.0, 4.0, 1.5, 2.4, 6.0])
    assert groups(ranks, 1.0) == [(0, 2), (2, 3)]  # 4 and 6 stand alone
    assert groups(ranks, 0.5) == []  # a difference of exactly the critical one is significant
    assert groups(ranks, 9.0) == [(0, 2, 3, 1, 4)]


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_the_largest_sets_without_significant_pairs(seed):
    ranks = np.random.default_rng(seed).uniform(1, 7, 7)
    near = [
        set(some)
        for size in range(2, 8)
        for some in itertools.combinations(range(7), size)
        if max(ranks[list(some)]) - min(ranks[list(some)]) < 1.3
    ]
    largest = [some for some in near if not any(some < other for other in near)]
    found = [set(group) for group in groups(ranks, 1.3)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, largest))


def test_pairs_are_wilcoxon_tests_with_holm(rng):
    scores = rng.random((8, 4)) + np.array([0, 0.1, 0.3, 0.6])
    found = pairs(scores)
    places = list(itertools.combinations(range(4), 2))
    assert [(pair.first, pair.second) for pair in found] == places
    raw = [wilcoxon(scores[:, one], scores[:, other]) for one, other in places]
    assert [pair.p for pair in found] == raw
    assert [pair.p for pair in found] == pytest.approx(
        [stats.wilcoxon(scores[:, one], scores[:, other]).pvalue for one, other in places]
    )
    assert [pair.p_holm for pair in found] == holm(raw)
    (last,) = [pair for pair in found if (pair.first, pair.second) == (0, 3)]
    assert last.direction == -1


def test_pairs_with_a_control_are_corrected_for_these_alone(rng):
    scores = rng.random((8, 4))
    every = {(pair.first, pair.second): pair.p for pair in pairs(scores)}
    found = pairs(scores, control=2)
    assert [(pair.first, pair.second) for pair in found] == [(0, 2), (1, 2), (2, 3)]
    assert [pair.p_holm for pair in found] == holm([every[0, 2], every[1, 2], every[2, 3]])


@pytest.mark.parametrize("blocks", [3, 6])
def test_no_p_is_below_the_least_one(blocks):
    scores = np.arange(blocks)[:, None] * 0.01 + np.array([0.1, 0.3, 0.6])  # the same order on all
    scores += np.arange(blocks)[:, None] * np.array([0, 0.001, 0.003])  # no ties among the differences
    found = pairs(scores)
    assert min(pair.p_holm for pair in found) == pytest.approx(least_p(blocks, found))
