"""Random streams and cohorts: functions of the seed, independent of everything else."""

import math

import numpy as np
import pytest

from pfl_benchmark.engine.schedule import Schedule
from pfl_benchmark.engine.streams import Streams

PURPOSES = ("partition", "init", "participation", "batches-main", "batches-personal", "augment", "dropout")


def draw(generator):
    return tuple(generator.integers(0, 2**62, 4).tolist())


# Streams


def test_every_stream_is_its_own():
    labels = [(s, p, r, k) for s in (0, 1) for p in PURPOSES for r in (0, 1, 11) for k in (0, 1, 11)]
    drawn = {draw(Streams(seed).get(purpose, r, k)) for seed, purpose, r, k in labels}
    assert len(drawn) == len(labels)


def test_a_stream_starts_anew_each_time_and_depends_on_no_other():
    streams = Streams(5)
    first = draw(streams.get("mask", 3, 2))
    draw(streams.get("init"))
    assert draw(streams.get("mask", 3, 2)) == first == draw(Streams(5).get("mask", 3, 2))


def test_streams_stay_what_they_were():
    """Committed results depend on these numbers: a change here makes them irreproducible."""
    assert Streams(0).get("batches-main", 1, 2).permutation(8).tolist() == [6, 1, 7, 4, 3, 5, 0, 2]


# Cohorts


@pytest.mark.parametrize("clients", [1, 3, 6, 20, 70, 100, 136])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.25, 0.3, 0.5, 0.7, 1.0])
def test_size_of_a_cohort(clients, share):
    hundredths = round(100 * share)
    size = Schedule(clients, share, Streams(0)).cohort_size
    assert size == max(1, -(-clients * hundredths // 100))  # ceil in integers


def test_a_product_slightly_above_an_integer_adds_no_client():
    assert math.ceil(0.07 * 100) == 8  # what must not happen
    assert Schedule(100, 0.07, Streams(0)).cohort_size == 7
    assert Schedule(136, 0.1, Streams(0)).cohort_size == 14


def test_cohorts_are_sorted_different_clients():
    schedule = Schedule(20, 0.25, Streams(3))
    for number in range(1, 30):
        cohort = schedule.cohort(number, full=False)
        assert cohort == sorted(set(cohort))
        assert len(cohort) == 5 == schedule.size(full=False)
        assert set(cohort) <= set(range(20))
        assert schedule.cohort(number, full=True) == list(range(20))
    assert schedule.size(full=True) == 20


def test_everyone_is_equally_likely():
    schedule = Schedule(20, 0.25, Streams(0))
    rounds = 2000
    counts = np.bincount([k for n in range(rounds) for k in schedule.cohort(n, False)], minlength=20)
    # Binomial with mean 500 and standard deviation 19.4.
    assert abs(counts - rounds / 4).max() < 5 * 19.4


def test_client_rounds_of_the_paper():
    schedule = Schedule(100, 0.1, Streams(0))
    assert sum(schedule.size(full=number == 160) for number in range(1, 161)) == 1_690


def test_somebody_takes_part_however_small_the_share():
    assert Schedule(5, 1e-12, Streams(0)).cohort(1, False) != []
