"""Tests and ranks against enumeration, hand-computed numbers, and what they must always obey."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from pfl_benchmark.studies.statistics import (
    compare_with,
    direction,
    holm,
    mean_and_std,
    ranks_by_column,
    wilcoxon,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def ranks_of_sizes(differences):
    """1 for the smallest magnitude; equal ones share the mean of their ranks."""
    sizes = sorted(map(abs, differences))
    return [np.mean([place for place, other in enumerate(sizes, 1) if other == abs(d)]) for d in differences]


@pytest.mark.parametrize("count", [6, 11])
def test_wilcoxon_counts_the_sign_patterns(count, rng):
    """Exact without ties: the share of all 2ⁿ patterns whose rank sum lies as far from the middle."""
    first, second = rng.random(count), rng.random(count) - 0.2
    ranks = ranks_of_sizes(first - second)
    sums = [np.dot(signs, ranks) for signs in itertools.product((-1, 1), repeat=count)]
    seen = np.dot(np.sign(first - second), ranks)
    assert 0 < wilcoxon(first, second) < 1
    assert wilcoxon(first, second) == pytest.approx(np.mean(np.abs(sums) >= abs(seen)))


def test_wilcoxon_of_many_ties_by_its_formula(rng):
    """The normal approximation over the signed ranks, zeros ranked but on no side (Pratt)."""
    first, second = rng.integers(0, 6, 80) / 10, rng.integers(0, 5, 80) / 10
    ranks = np.array(ranks_of_sizes((first - second).round(9)))
    signs = np.sign((first - second).round(9))
    assert (signs == 0).any()
    z = np.dot(signs, ranks) / math.sqrt((ranks[signs != 0] ** 2).sum())
    assert wilcoxon(first, second) == pytest.approx(math.erfc(abs(z) / math.sqrt(2)))


def test_floats_do_not_decide_ties():
    """0.3 - 0.2 and 0.2 - 0.1 are one difference: both of rank 1.5, so that they cancel."""
    assert direction([0.3, 0.1], [0.2, 0.2]) == 0
    assert wilcoxon([0.3, 0.1], [0.2, 0.2]) == 1


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


def test_wilcoxon_does_not_care_for_order(rng):
    first, second = rng.random(30), rng.random(30)
    assert wilcoxon(first, second) == pytest.approx(wilcoxon(second, first))


def test_holm_by_hand():
    # Sorted: .005·4 = .02, .01·3 = .03, .03·2 = .06, then max(.06, .04·1) = .06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@pytest.mark.parametrize("seed", range(5))
def test_holm_rejects_what_stepping_down_rejects(seed):
    """From the smallest on, p is held against level / comparisons left; the first that fails ends it."""
    values = (np.random.default_rng(seed).random(12) ** 4).tolist()
    corrected = holm(values)
    for level in (0.01, 0.05, 0.2, 0.5, 0.9):
        rejected = set()
        for left, place in zip(range(12, 0, -1), np.argsort(values).tolist(), strict=True):
            if values[place] > level / left:
                break
            rejected.add(place)
        assert {place for place, p in enumerate(corrected) if p <= level} == rejected


def test_holm_invariants(rng):
    values = (rng.random(12) ** 4).tolist()
    corrected = holm(values)
    assert all(value <= fixed <= 1 for value, fixed in zip(values, corrected, strict=True))
    in_order = [corrected[place] for place in np.argsort(values)]
    assert in_order == sorted(corrected), "no correction changes the order"
    shuffled = rng.permutation(12).tolist()
    assert holm([values[place] for place in shuffled]) == [corrected[place] for place in shuffled]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


def test_comparison_pairs_only_what_both_have(rng):
    values = {seed: rng.random(10) for seed in (0, 1)}
    less = {seed: values[seed] - 0.1 - np.arange(10) / 100 - seed / 10 for seed in (0, 1)}
    found = compare_with({"a": values, "b": {1: less[1]}, "c": less}, "a")
    assert (found["b"].pairs, found["c"].pairs) == (10, 20)
    assert found["b"].difference == pytest.approx(-0.245)
    raw = [2 / 2**10, 2 / 2**20]  # differences of one sign: two patterns are as far out
    assert [found["b"].p, found["c"].p] == pytest.approx(raw)
    assert [found["b"].p_holm, found["c"].p_holm] == pytest.approx([raw[0], 2 * raw[1]])
    assert found["c"].significant
    assert (found["b"].direction, found["c"].direction) == (-1, -1)


def test_the_standard_error_is_that_of_the_mean_difference_over_pairs(rng):
    ours, theirs = rng.random((2, 12))
    (found,) = compare_with(
        {"a": {0: ours[:5], 1: ours[5:]}, "b": {0: theirs[:5], 1: theirs[5:]}}, "a"
    ).values()
    by_hand = math.sqrt(((ours - theirs - (ours - theirs).mean()) ** 2).sum() / 11 / 12)
    assert found.standard_error == pytest.approx(by_hand)
    (alone,) = compare_with({"a": {0: ours[:1]}, "b": {0: theirs[:1]}}, "a").values()
    assert np.isnan(alone.standard_error)


def test_comparison_leaves_out_methods_without_a_common_pair():
    assert compare_with({"a": {"x": np.array([0.5])}, "b": {"y": np.array([0.4])}}, "a") == {}


def test_ranks_by_column_by_hand():
    figures = pd.DataFrame(
        {"one": [0.9, 0.8, 0.8, np.nan], "two": [0.5, 0.7, 0.6, np.nan], "three": [0.1, np.nan, 0.3, np.nan]},
        index=list("abcd"),
    )
    ranks = ranks_by_column(figures)
    assert list(ranks.columns) == ["one", "two", "average"]  # "three" lacks b; d has nothing at all
    assert ranks["average"].to_dict() == {"a": 2.0, "b": 1.75, "c": 2.25}


def test_ranks_by_column_of_nothing():
    assert ranks_by_column(pd.DataFrame({"one": [np.nan]}, index=["a"])).empty


def test_floats_do_not_decide_ranks():
    one, other = (np.mean([n / 400 for n in counts]) for counts in ((276, 271, 275), (277, 270, 275)))
    assert one != other
    ranks = ranks_by_column(pd.DataFrame({"a": [one, other]}, index=["Ditto", "FedPer"]))
    assert ranks["a"].tolist() == [1.5, 1.5]


def test_mean_and_std():
    assert mean_and_std([0.5]) == (0.5, None)
    assert mean_and_std([1, 2, 3]) == (2.0, 1.0)


def test_direction_is_that_of_the_signed_ranks():
    """Not of the mean: one large gain against many small losses."""
    ours, theirs = [0.9, *[0.5] * 9], [0.1, *[0.51] * 9]
    assert np.mean(ours) > np.mean(theirs)
    assert (direction(ours, theirs), direction(theirs, ours), direction(ours, ours)) == (-1, 1, 0)


def test_significance_is_of_the_corrected_value():
    """p < 0.05 alone, not among three."""
    best, other = np.arange(1.0, 8.0), np.zeros(7)
    other[0] = 2.0  # rank 1 against 2 to 7: of 128 patterns two are as far out, and their mirror images
    alone = compare_with({"a": {0: best}, "b": {0: other}}, "a")["b"]
    assert (alone.p, alone.p_holm, alone.significant) == (4 / 128, 4 / 128, True)
    among = compare_with({"a": {0: best}, **{name: {0: other} for name in "bcd"}}, "a")["b"]
    assert (among.p, among.p_holm, among.significant) == (4 / 128, 12 / 128, False)
