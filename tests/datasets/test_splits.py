"""Splits by labels: what each partitioner promises, over many sizes."""

import dataclasses

import numpy as np
import pytest

from pfl_benchmark.datasets.api import PARTITIONERS, load
from pfl_benchmark.datasets.partitioners.dirichlet import dirichlet_counts
from pfl_benchmark.datasets.partitioners.distinct import deal_classes, repair_duplicates
from pfl_benchmark.datasets.pools import ClassPools, apportion
from pfl_benchmark.errors import UserError

DEALS = [  # clients, classes per client, classes
    (1, 1, 1),
    (1, 10, 10),
    (2, 3, 10),  # some classes are never dealt
    (3, 4, 5),
    (7, 3, 10),
    (10, 9, 10),
    (10, 10, 10),
    (20, 2, 10),
    (100, 2, 10),
    (100, 5, 10),
    (100, 10, 26),  # 1,000 uses of 26 classes
    (100, 20, 100),
    (100, 40, 100),
    (60, 99, 100),
    (30, 100, 100),
]


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def labels_of(sizes):
    """Labels with sizes[c] images of class c, in a mixed order."""
    return np.random.default_rng(7).permutation(np.repeat(np.arange(len(sizes)), sizes))


def spec_for(partition, **changes):
    partitioner = PARTITIONERS[partition]
    known = {"clients": 20, "samples_per_client": 40, "test_samples_per_client": 15}
    known |= {"classes_per_client": 3, "dirichlet": 0.5} | changes
    return partitioner(**{spec.name: known[spec.name] for spec in dataclasses.fields(partitioner)})


def split_of(dataset, spec, seed=0):
    return spec.split(dataset, np.random.default_rng(seed))


# Any partitioner


def test_checksum_is_the_same_everywhere():
    labels = np.arange(60) % 3
    spec = spec_for(
        "distinct", clients=4, samples_per_client=6, test_samples_per_client=3, classes_per_client=2
    )
    assert spec.divide(labels, labels, 3, np.random.default_rng(0)).checksum == "eee8a464ce7597de"


def test_class_counts(digits):
    split = split_of(digits, spec_for("dirichlet"))
    counts = split.class_counts(digits.train.y)
    assert counts.shape == (20, 10)
    expected = [np.bincount(digits.train.y[part], minlength=10) for part in split.train]
    np.testing.assert_array_equal(counts, expected)


# distinct and shards


@pytest.mark.parametrize(("clients", "per_client", "classes"), DEALS)
def test_deal_uses_classes_evenly(clients, per_client, classes):
    for seed in range(3):
        hands = deal_classes(clients, per_client, classes, np.random.default_rng(seed))
        assert hands.shape == (clients, per_client)
        uses = np.bincount(hands.ravel(), minlength=classes)
        assert set(uses) <= {clients * per_client // classes, -(-clients * per_client // classes)}


@pytest.mark.parametrize(("clients", "per_client", "classes"), DEALS)
def test_repair_leaves_no_duplicates(clients, per_client, classes):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        dealt = deal_classes(clients, per_client, classes, rng)
        hands = repair_duplicates(dealt, classes, rng)
        assert all(len(set(hand)) == per_client for hand in hands.tolist())
        np.testing.assert_array_equal(np.sort(hands, axis=None), np.sort(dealt, axis=None))


def test_repair_of_the_worst_deal():
    """Everybody holds one class only, many times."""
    hands = repair_duplicates(np.repeat(np.arange(8), 8).reshape(8, 8), 8, np.random.default_rng(0))
    assert all(sorted(hand) == list(range(8)) for hand in hands.tolist())


@pytest.mark.parametrize(("clients", "per_client", "classes"), DEALS)
@pytest.mark.parametrize("extra", [0, 1])
def test_distinct_gives_equal_shares(clients, per_client, classes, extra):
    samples = 2 * per_client + extra * (per_client - 1)  # extra: per_client does not divide it
    labels = labels_of([3 * clients] * classes)
    spec = spec_for(
        "distinct",
        clients=clients,
        samples_per_client=samples,
        test_samples_per_client=per_client,
        classes_per_client=per_client,
    )
    split = spec.divide(labels, labels, classes, np.random.default_rng(0))
    counts = split.class_counts(labels)
    assert ((counts > 0).sum(axis=1) == per_client).all()
    assert set(counts[counts > 0]) <= {samples // per_client, -(-samples // per_client)}
    assert (split.train_sizes == samples).all()
    for train, test in zip(split.train, split.test, strict=True):
        assert set(labels[train]) == set(labels[test])


def test_shards_may_repeat_a_class(digits):
    """As in FedRep's code: of 100 clients with two classes of ten about one in ten has a single class."""
    labels = labels_of([5000] * 10)
    spec = spec_for("shards", clients=1000, samples_per_client=20, classes_per_client=2)
    counts = spec.divide(labels, labels, 10, np.random.default_rng(0)).class_counts(labels)
    classes = (counts > 0).sum(axis=1)
    assert classes.max() == 2
    assert 0.06 < (classes == 1).mean() < 0.14


def test_shards_can_use_everything():
    labels = labels_of([100] * 10)
    spec = spec_for("shards", clients=50, samples_per_client=20, classes_per_client=2)
    split = spec.divide(labels, labels, 10, np.random.default_rng(0))
    assert sorted(np.concatenate(split.train)) == list(range(1000))


def test_test_images_follow_the_dealt_shards():
    labels = labels_of([1000] * 10)
    spec = spec_for(
        "shards", clients=40, samples_per_client=200, test_samples_per_client=60, classes_per_client=3
    )
    split = spec.divide(labels, labels, 10, np.random.default_rng(0))
    for test in split.test:
        assert set(np.bincount(labels[test])) <= {0, 20, 40, 60}


@pytest.mark.parametrize("partition", ["distinct", "shards"])
def test_unbalanced_classes_suffice_up_to_the_named_limit(partition):
    sizes = [30, 41, 52, 63, 74]
    labels = labels_of(sizes)

    def split(samples):
        spec = spec_for(
            partition, clients=10, samples_per_client=samples, test_samples_per_client=5, classes_per_client=2
        )
        for seed in range(20):
            spec.divide(labels, labels, 5, np.random.default_rng(seed))

    split(14)  # 30 images among 4 clients are 7 each
    with pytest.raises(UserError, match=r"30 training images for up to 4 clients: give at most 14"):
        split(15)


# Test sets


def test_test_parts_are_disjoint_where_they_suffice(digits):
    spec = spec_for("distinct", clients=10, classes_per_client=2, test_samples_per_client=40)
    images = np.concatenate(split_of(digits, spec).test)  # 45 a class, 2 clients of 20 each
    assert len(np.unique(images)) == len(images)


@pytest.mark.parametrize("samples", [10, 11])
def test_no_test_image_twice_where_a_class_has_none(samples):
    spec = spec_for(
        "distinct", clients=4, samples_per_client=20, test_samples_per_client=samples, classes_per_client=2
    )

    def split():
        return spec.divide(labels_of([50] * 4), labels_of([10] * 3), 4, np.random.default_rng(0))

    if samples == 10:
        assert all(len(np.unique(rows)) == 10 for rows in split().test)
    else:
        with pytest.raises(UserError, match="give at most 10"):
            split()


@pytest.mark.parametrize("partition", ["distinct", "iid"])
def test_shared_test_images_are_used_evenly(partition):
    labels = labels_of([12] * 5)
    spec = spec_for(
        partition, clients=30, samples_per_client=2, test_samples_per_client=10, classes_per_client=1
    )
    split = spec.divide(labels_of([60] * 5), labels, 5, np.random.default_rng(0))
    uses = np.bincount(np.concatenate(split.test), minlength=60)
    assert uses.sum() == 300
    assert set(uses) == {5}


# dirichlet


@pytest.mark.parametrize(("alpha", "classes", "majority"), [(1.0, (8.4, 9.6), 0.32), (0.3, (6.2, 7.2), 0.46)])
def test_dirichlet_statistics(alpha, classes, majority):
    """The figures that FedDF's code gives at 100 clients and 15,000 images of 10 classes."""
    labels = labels_of([2000] * 10)
    counts = dirichlet_counts(labels, 10, clients=100, mean=150, alpha=alpha, rng=np.random.default_rng(0))
    sizes = counts.sum(axis=1)
    assert sizes.sum() == 15_000
    assert sizes.min() >= 75
    assert classes[0] < (counts > 0).sum(axis=1).mean() < classes[1]
    assert (counts.max(axis=1) / sizes).mean() == pytest.approx(majority, abs=0.04)


@pytest.mark.parametrize("clients", [1, 3, 10, 11, 19, 20])
def test_dirichlet_groups_of_any_size(clients):
    """The last group has fewer than ten clients and as many times the mean."""
    labels = labels_of([400] * 5)
    counts = dirichlet_counts(labels, 5, clients, mean=60, alpha=0.5, rng=np.random.default_rng(0))
    assert counts.shape == (clients, 5)
    last = clients % 10 or 10
    assert counts[-last:].sum() == 60 * last
    assert counts.sum() == 60 * clients


def test_dirichlet_test_parts_have_the_training_proportions(digits):
    split = split_of(digits, spec_for("dirichlet", test_samples_per_client=40))
    for train, test in zip(split.train, split.test, strict=True):
        expected = np.bincount(digits.train.y[train], minlength=10) / len(train) * 40
        assert np.abs(np.bincount(digits.test.y[test], minlength=10) - expected).max() < 1


@pytest.mark.parametrize(("alpha", "instead"), [(1e-2, "fewer --clients"), (1e-12, "--partition distinct")])
def test_dirichlet_gives_up(alpha, instead):
    """Two classes cannot go to one client each and leave enough to the others."""
    labels = labels_of([400] * 2)
    with pytest.raises(UserError, match=f"--dirichlet .* 1000 tries: use a larger one, or {instead}"):
        spec_for("dirichlet", dirichlet=alpha).divide(labels, labels, 2, np.random.default_rng(0))


# Helpers


def test_apportion_is_exact_and_nearest():
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 50, size=(200, 7)) + np.eye(7, dtype=np.int64)[rng.integers(0, 7, 200)]
    counts = apportion(weights, 33, rng)
    assert (counts.sum(axis=1) == 33).all()
    assert (counts[weights == 0] == 0).all()
    assert np.abs(counts - weights / weights.sum(axis=1, keepdims=True) * 33).max() < 1


def test_apportion_breaks_ties_at_random():
    counts = apportion(np.ones((2000, 4), dtype=np.int64), 1, np.random.default_rng(0))
    assert counts.sum(axis=0) == pytest.approx([500] * 4, rel=0.15)


def test_pools_go_round():
    labels = np.array([0, 1, 1, 1, 0])
    parts = ClassPools(labels, 3, np.random.default_rng(0)).take(np.array([[1, 2, 0], [1, 0, 0], [0, 3, 0]]))
    assert [sorted(labels[part]) for part in parts] == [[0, 1, 1], [0], [1, 1, 1]]
    assert sorted(np.concatenate(parts[:2])[[0, 3]]) == [0, 4]
    assert sorted(parts[2]) == [1, 2, 3]


# Requests that cannot be met


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"partition": "distinct", "classes_per_client": 11}, "give at most 10"),
        ({"partition": "shards", "classes_per_client": 11}, "give at most 10"),
        ({"partition": "distinct", "samples_per_client": 2}, "fewer than the 3 classes per client"),
        ({"partition": "distinct", "samples_per_client": 70}, "for up to 6 clients: give at most 63"),
        ({"partition": "shards", "samples_per_client": 70}, "for up to 6 clients: give at most 63"),
        (
            {"partition": "iid", "samples_per_client": 70},
            "1,347 training images for 20 clients: give at most 67",
        ),
        ({"partition": "dirichlet", "samples_per_client": 70}, "1,347 training images .* give at most 67"),
        ({"partition": "distinct", "test_samples_per_client": 140}, "45 test images: give at most 135"),
        ({"partition": "shards", "test_samples_per_client": 46}, "45 test images: give at most 45"),
        ({"partition": "dirichlet", "test_samples_per_client": 46}, "45 test images: give at most 45"),
        ({"partition": "iid", "test_samples_per_client": 451}, "there are 450 test images: give at most 450"),
        ({"partition": "distinct", "clients": 2000}, "600 clients: use fewer clients or another dataset"),
        ({"partition": "iid", "clients": 2000}, "for 2,000 clients: use fewer clients or another dataset"),
    ],
)
def test_requests_larger_than_the_dataset(digits, changes, message):
    with pytest.raises(UserError, match=message) as error:
        split_of(digits, spec_for(**changes))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("partition", "samples", "test_samples"),
    [("distinct", 63, 135), ("shards", 63, 45), ("iid", 67, 450), ("dirichlet", 67, 45)],
)
def test_the_named_limits_work(digits, partition, samples, test_samples):
    spec = spec_for(partition, samples_per_client=samples, test_samples_per_client=test_samples)
    for seed in range(10):
        assert (split_of(digits, spec, seed).test_sizes == test_samples).all()
