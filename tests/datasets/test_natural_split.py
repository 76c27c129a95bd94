"""One client per user: who is a client, and which of the user's samples are for testing."""

import dataclasses

import numpy as np
import pytest

from pfl_benchmark.datasets.api import PARTITIONERS, load
from pfl_benchmark.errors import UserError

BASE = PARTITIONERS["natural"](20, 1, 1, user_pool=20, test_share=0.25, least_test=8)


@pytest.fixture(scope="module")
def tweets():
    return load("synth-tweets")


def split(tweets, seed=0, **changes):
    return dataclasses.replace(BASE, **changes).split(tweets, np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "changes", [{}, {"clients": 7}, {"user_pool": 0, "clients": 24}, {"test_share": 0.29}]
)
def test_promises(tweets, seed, changes):
    made = split(tweets, seed, **changes)
    assert made.clients == changes.get("clients", 20)
    share = changes.get("test_share", 0.25)
    authors = []
    for train, test in zip(made.train, made.test, strict=True):
        (user,) = set(tweets.users[np.concatenate([train, test])].tolist())
        authors.append(user)
        own = np.flatnonzero(tweets.users == user)
        assert sorted([*train, *test]) == own.tolist()  # everything once
        assert len(test) == int(share * len(own) + 1e-9)
        assert len(test) >= 8
        # Stratified: the classes' shares in both parts, as near as whole numbers can be.
        for label in (0, 1):
            count = (tweets.train.y[own] == label).sum()
            assert abs((tweets.train.y[test] == label).sum() - count * len(test) / len(own)) < 1
    assert authors == sorted(set(authors))


def test_the_pool_are_those_with_most_samples(tweets):
    wrote = np.bincount(tweets.users)
    made = split(tweets)
    pool = {int(tweets.users[part[0]]) for part in made.train}
    assert min(wrote[list(pool)]) >= max(count for user, count in enumerate(wrote) if user not in pool)
    least = min(wrote[list(pool)])
    assert made.facts == {
        "users": 24,
        "qualified_users": (wrote // 4 >= 8).sum(),
        "user_pool": 20,
        "least_samples": least,
        "users_with_least_samples": (wrote >= least).sum(),
    }


def test_a_smaller_number_of_clients_is_a_seeded_sample_of_the_pool(tweets):
    whole = {int(tweets.users[part[0]]) for part in split(tweets).train}
    few = [
        tuple(int(tweets.users[part[0]]) for part in split(tweets, seed, clients=5).train)
        for seed in range(6)
    ]
    assert all(set(clients) <= whole for clients in few)
    assert len(set(few)) > 3
    assert few[0] == tuple(int(tweets.users[part[0]]) for part in split(tweets, 0, clients=5).train)


def test_the_seed_and_the_data_decide(tweets):
    first, again, other = (split(tweets, seed).checksum for seed in (0, 0, 1))
    assert first == again != other
    changed = dataclasses.replace(tweets, digest="other vectors")
    assert split(changed).checksum != first


def test_ties_are_broken_by_the_users_numbers(tweets):
    wrote = np.bincount(tweets.users)
    tied = next(count for count in sorted(wrote) if (wrote == count).sum() > 1)
    above = int((wrote > tied).sum())
    made = split(tweets, clients=above + 1, user_pool=above + 1, least_test=1)
    chosen = [int(tweets.users[part[0]]) for part in made.train]
    assert [user for user in chosen if wrote[user] == tied] == np.flatnonzero(wrote == tied)[:1].tolist()
    assert made.facts["users_with_least_samples"] - made.facts["user_pool"] == (wrote == tied).sum() - 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"clients": 30, "user_pool": 0},
            "clients is 30, but there are only 24 users in synthetic .* give at most 24",
        ),
        ({"user_pool": 30}, "--user-pool is 30, but there are only 24 users .* 0 for all of them"),
        ({"clients": 21}, "clients is 21, but they are drawn among the 20 users"),
        ({"least_test": 50}, "no user in .* has at least 50 test samples .* a smaller --least-test"),
        ({"test_share": 0.0}, r"--test-share is 0; expected a number in \(0, 1\)"),
        ({"test_share": 1.0}, "--test-share is 1"),
        (
            {"test_share": 0.001, "least_test": 0},
            "no user in .* has at least 1 test sample .* a larger --test-share, such as 0.05",
        ),
    ],
)
def test_bad_requests(tweets, changes, message):
    with pytest.raises(UserError, match=message):
        split(tweets, **changes)


def test_the_made_tweets_are_the_same_everywhere(tweets):
    """Other sentences would make other records of the quick profile."""
    assert len(tweets.train) == 1258
    weights = np.arange(1, tweets.train.x.size + 1, dtype=np.int64)
    assert int(tweets.train.x.ravel().astype(np.int64) @ weights) == 2_312_435_714


def test_users_mean_different_things_by_the_same_words(tweets):
    """So that there is something to personalize; and something in common to share."""
    x, y, users = tweets.train.x, tweets.train.y, tweets.users
    private = common = 0
    for row in range(2, len(tweets.vectors)):
        has = (x == row).any(axis=1)
        means = [y[has & (users == user)].mean() for user in set(users[has].tolist())]
        private += 0.0 in means and 1.0 in means and np.mean([0 < m < 1 for m in means]) < 0.1
        common += len(means) > 10 and len(set(means)) == 1
    assert private > 10
    assert common > 5
