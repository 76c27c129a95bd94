"""Aggregates and their bootstrap intervals: by definition, by hand, by scipy, and simulated."""

import itertools

import numpy as np
import pytest
from scipy import stats

from pfl_benchmark.studies.bootstrap import improvement, improvement_interval, iqm, iqm_interval


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_iqm_by_hand():
    # Of 8 the two smallest and the two largest go.
    assert iqm(np.array([100, 1, 2, 3, 4, 5, 6, -9.0])) == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert iqm(np.array([1.0, 2.0, 6.0])) == 3  # a quarter of three is less than one run


def test_improvement_by_hand():
    ours, theirs = np.array([0.6, 0.4, 0.5, 0.9]), np.array([0.5, 0.4, 0.1, 0.9])
    # On a: 0.6 beats both, 0.4 loses to 0.5 and ties 0.4: 2.5 of 4. On b: 0.5 loses to 0.9 and beats 0.1, 0.9
    # ties 0.9 and beats 0.1: 2.5 of 4.
    assert improvement(ours, theirs, ["a", "a", "b", "b"]) == pytest.approx(0.625)
    assert improvement(ours, theirs, ["a", "b", "c", "d"]) == pytest.approx((1 + 0.5 + 1 + 0.5) / 4)


def test_improvement_is_mann_whitney_averaged_over_settings(rng):
    """As rliable computes it; settings count alike, whatever their number of runs."""
    settings = ["a"] * 3 + ["b"] * 5
    ours, theirs = rng.random((2, 8)).round(1)
    by_setting = [
        stats.mannwhitneyu(ours[part], theirs[part], alternative="greater").statistic / size**2
        for part, size in ((slice(0, 3), 3), (slice(3, 8), 5))
    ]
    assert improvement(ours, theirs, settings) == pytest.approx(np.mean(by_setting))
    assert improvement(theirs, ours, settings) == pytest.approx(1 - np.mean(by_setting))


def test_floats_do_not_decide_improvement():
    assert improvement(np.array([0.3]), np.array([0.1 + 0.2]), ["a"]) == 0.5


def test_intervals_are_the_same_each_time(rng):
    ours, theirs = rng.random((2, 6))
    settings = ["a", "a", "a", "b", "b", "b"]
    assert iqm_interval(ours, settings) == iqm_interval(ours.copy(), settings)
    assert improvement_interval(ours, theirs, settings) == improvement_interval(ours, theirs, settings)


def test_no_interval_without_a_second_run():
    """Nothing would be drawn but the run itself, which is no certainty."""
    assert iqm_interval(np.array([0.1, 0.2, 0.3]), ["a", "a", "b"]) is None
    assert improvement_interval(np.array([0.1, 0.2]), np.array([0.1, 0.3]), ["a", "b"]) is None


def test_runs_are_drawn_within_settings():
    """Settings that differ by far and runs that do not: the difference of settings is no uncertainty."""
    scores = np.array([0.1, 0.1, 0.9, 0.9])
    assert iqm_interval(scores, ["a", "a", "b", "b"]) == pytest.approx((0.5, 0.5))
    low, high = iqm_interval(scores, ["a"] * 4)
    assert high - low > 0.5


def test_the_interval_of_two_runs_by_enumeration():
    """Two settings of two runs: all 16 samples are as likely."""
    scores, parts = np.array([0.1, 0.2, 0.5, 0.8]), ((0, 1), (2, 3))
    draws = [
        iqm(scores[[*one, *two]])
        for one in itertools.product(parts[0], repeat=2)
        for two in itertools.product(parts[1], repeat=2)
    ]
    low, high = iqm_interval(scores, ["a", "a", "b", "b"])
    assert (low, high) == pytest.approx((min(draws), max(draws)))  # each has a share of 1/16 or more


def test_the_interval_of_improvement_by_enumeration():
    ours, theirs = np.array([0.3, 0.6, 0.7]), np.array([0.4, 0.5, 0.65])
    draws = [
        improvement(ours[list(one)], theirs[list(two)], ["a"] * 3)
        for one in itertools.product(range(3), repeat=3)
        for two in itertools.product(range(3), repeat=3)
    ]
    expected = np.percentile(draws, [2.5, 97.5])
    assert improvement_interval(ours, theirs, ["a"] * 3) == pytest.approx(expected, abs=0.12)


@pytest.mark.parametrize(("runs", "least", "most"), [(2, 0.55, 0.78), (10, 0.87, 0.97)])
def test_intervals_cover(monkeypatch, runs, least, most):
    """Four settings around known levels: how often 95 % intervals of the interquartile mean hold its value.

    Percentile intervals of few runs are too narrow.
    """
    covered, _ = coverage(monkeypatch, runs)
    assert least < covered < most


def test_intervals_of_improvement_cover(monkeypatch):
    _, covered = coverage(monkeypatch, 10)
    assert 0.87 < covered < 0.98


def coverage(monkeypatch, runs, count=200):
    """The shares of intervals that hold the population's interquartile mean, and its probability."""
    monkeypatch.setattr("pfl_benchmark.studies.bootstrap.RESAMPLES", 1000)
    rng = np.random.default_rng(2)
    settings, levels = np.repeat(list("abcd"), runs), np.repeat([0.3, 0.5, 0.6, 0.8], runs)
    true_mean = iqm(np.repeat([0.3, 0.5, 0.6, 0.8], 50_000) + rng.normal(0, 0.05, 200_000))
    true_chance = stats.norm.cdf(0.03 / (0.05 * np.sqrt(2)))
    held = []
    for _ in range(count):
        ours = levels + rng.normal(0, 0.05, len(levels))
        theirs = levels - 0.03 + rng.normal(0, 0.05, len(levels))
        low, high = iqm_interval(ours, settings)
        lowest, highest = improvement_interval(ours, theirs, settings)
        held.append((low <= true_mean <= high, lowest <= true_chance <= highest))
    return np.mean(held, axis=0)
