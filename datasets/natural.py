"""The natural split: one client per user, with the samples that the user wrote."""

from __future__ import annotations

import numpy as np

from benchmark.errors import UserError
from datasets.data import Dataset
from datasets.partitions import apportion
from datasets.splits import Split, SplitSpec

__all__ = ["split_by_user"]


def split_by_user(spec: SplitSpec, dataset: Dataset, rng: np.random.Generator) -> Split:
    """Make clients of users of `dataset`; all randomness comes from `rng`.

    floor(`test_share` · n) of a user's n samples are held out, in the proportions of the user's classes. Of
    the users with at least `least_test` such samples (and one for training) the `user_pool` with most samples
    are kept, ties broken by the users' numbers; of these a random sample of `clients`. Client numbers follow
    users' numbers. `Split.facts` says what number of samples set the pool apart.

    Raises UserError where there are too few users.
    """
    users, labels = dataset.users, dataset.train.y
    assert users is not None
    wrote = np.bincount(users)
    held_out = np.floor(spec.test_share * wrote + 1e-9).astype(np.int64)  # 0.29 · 100 is a little below 29
    qualified = np.flatnonzero((held_out >= max(1, spec.least_test)) & (held_out < wrote))
    if len(qualified) < max(spec.user_pool, spec.clients):
        raise UserError(_too_few(spec, len(qualified)))
    pool = qualified[np.argsort(-wrote[qualified], kind="stable")][: spec.user_pool or None]
    chosen = np.sort(rng.permutation(pool)[: spec.clients])
    counts = np.zeros((len(wrote), dataset.classes), dtype=np.int64)
    np.add.at(counts, (users, labels), 1)
    for_test = apportion(counts[chosen], held_out[chosen][:, None], rng)
    shuffled = rng.permutation(len(users))
    by_user = shuffled[np.argsort(users[shuffled], kind="stable")]
    ends = np.cumsum(wrote)
    train, test = [], []
    for user, takes in zip(chosen, for_test, strict=True):
        own = by_user[ends[user] - wrote[user] : ends[user]]
        parts = [own[labels[own] == label] for label in range(dataset.classes)]
        test.append(np.concatenate([part[:take] for part, take in zip(parts, takes, strict=True)]))
        train.append(np.concatenate([part[take:] for part, take in zip(parts, takes, strict=True)]))
    least = int(wrote[pool].min())
    facts = {
        "users": int((wrote > 0).sum()),
        "qualified_users": len(qualified),
        "user_pool": len(pool),
        "least_tweets": least,
        "users_with_least_tweets": int((wrote[qualified] >= least).sum()),
    }
    return Split(tuple(train), tuple(test), facts, dataset.digest)


def _too_few(spec: SplitSpec, found: int) -> str:
    held_out = f"{max(1, spec.least_test)} test samples (test_share {spec.test_share:g})"
    reason = f"{f'only {found:,} users have' if found else 'no user has'} at least {held_out}"
    if found >= spec.clients:
        return f"user_pool is {spec.user_pool:,}, but {reason}: give at most that many, or 0 for all of them"
    remedy = f"give at most {found:,} (with user_pool 0), or" if found else "give"
    return f"clients is {spec.clients:,}, but {reason}: {remedy} a smaller least_test"
