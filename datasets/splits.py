"""Which client gets which images: `make_split` and its request and result."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from benchmark.errors import UserError, nearest
from datasets.partitions import ClassPools, apportion, deal_classes, dirichlet_counts, repair_duplicates

__all__ = ["Partition", "Split", "SplitSpec", "make_split"]

Partition = Literal["distinct", "shards", "dirichlet", "iid", "natural"]


@dataclass(frozen=True)
class SplitSpec:
    """A request for a split.

    partition:
        distinct: every client has `classes_per_client` different classes and equally many images of each.
        shards: the same deal, but a client may get a class twice (FedRep, utils/sampling.py).
        dirichlet: class shares drawn from Dir(`dirichlet_alpha`) (FedDF, build_non_iid_by_dirichlet).
        iid: random parts of equal size.
        natural: a client is one of the users that wrote the samples (`split_by_user`).
    samples_per_client: training images of every client; for dirichlet their mean over the clients.
    test_samples_per_client: test images of every client, in the class proportions of its training images.
    user_pool, test_share, least_test: for natural, which has no use for the two before: clients are drawn
        among so many users, those with most samples (0: all); the share of a user's samples that is held
        out; users with fewer test samples are left out.

    Raises UserError for values that fit no dataset.
    """

    partition: Partition
    clients: int
    samples_per_client: int
    test_samples_per_client: int
    classes_per_client: int | None = None
    dirichlet_alpha: float | None = None
    user_pool: int = 0
    test_share: float = 0.0
    least_test: int = 0

    def __post_init__(self) -> None:
        known = get_args(Partition)
        if self.partition not in known:
            hint = nearest(self.partition, known)
            raise UserError(f"unknown partition '{self.partition}'{hint}: choose from {', '.join(known)}")
        for name in ("clients", "samples_per_client", "test_samples_per_client"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}: give a number of at least 1")
        if self.partition in ("distinct", "shards"):
            if self.classes_per_client is None:
                raise UserError(
                    f"partition '{self.partition}' needs classes_per_client: give a number of at least 1"
                )
            if self.classes_per_client < 1:
                raise UserError(
                    f"classes_per_client is {self.classes_per_client}: give a number of at least 1"
                )
        if self.partition == "dirichlet":
            if self.dirichlet_alpha is None:
                raise UserError(
                    "partition 'dirichlet' needs dirichlet_alpha: give a number above 0, such as 0.3"
                )
            if not (self.dirichlet_alpha > 0 and math.isfinite(self.dirichlet_alpha)):
                raise UserError(
                    f"dirichlet_alpha is {self.dirichlet_alpha}: give a number above 0, such as 0.3"
                )
        if self.partition == "natural":
            if not 0 < self.test_share < 1:
                raise UserError(f"test_share is {self.test_share:g}: give a share in (0, 1), such as 0.1")
            if 0 < self.user_pool < self.clients:
                raise UserError(
                    f"clients is {self.clients:,}, but they are drawn among the {self.user_pool:,} users "
                    "with most samples: give fewer clients, a larger user_pool, or user_pool 0 for all users"
                )


@dataclass(frozen=True, eq=False)
class Split:
    """Per client, int64 indices into the training and into the test samples of a dataset.

    facts: what is worth knowing of how it came about, as JSON values.
    digest: of the data, where they count for the checksum.
    """

    train: tuple[np.ndarray, ...]
    test: tuple[np.ndarray, ...]
    facts: Mapping[str, int] = field(default_factory=dict)
    digest: str = ""

    @property
    def clients(self) -> int:
        """Number of clients K."""
        return len(self.train)

    @property
    def train_sizes(self) -> np.ndarray:
        """Training images per client, int64 [K]."""
        return np.array([len(part) for part in self.train], dtype=np.int64)

    @property
    def test_sizes(self) -> np.ndarray:
        """Test images per client, int64 [K]."""
        return np.array([len(part) for part in self.test], dtype=np.int64)

    @property
    def checksum(self) -> str:
        """First 16 hex digits of the sha256 of all sizes and indices; equal splits have equal checksums."""
        digest = hashlib.sha256(self.digest.encode())
        # Little-endian on every machine.
        for numbers in (self.train_sizes, self.test_sizes, *self.train, *self.test):
            digest.update(numbers.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def class_counts(self, labels: npt.ArrayLike) -> np.ndarray:
        """Return the training images per client and class, int64 [K, C], from all training labels [N]."""
        labels = np.asarray(labels)
        classes = int(labels.max()) + 1
        client = np.repeat(np.arange(self.clients), self.train_sizes)
        cells = client * classes + labels[np.concatenate(self.train)]
        return np.bincount(cells, minlength=self.clients * classes).reshape(self.clients, classes)


def make_split(
    spec: SplitSpec,
    train_labels: npt.ArrayLike,
    test_labels: npt.ArrayLike,
    classes: int,
    rng: np.random.Generator,
) -> Split:
    """Divide a dataset among the clients of `spec` (of any law but natural); all randomness comes from `rng`.

    train_labels, test_labels: int64 [N], values 0..classes-1.
    Training parts are disjoint. Test parts are disjoint where the test set suffices; elsewhere images are
    shared between clients as evenly as possible, never repeated within one. Except for dirichlet, whether a
    request can be met does not depend on `rng`.

    Raises UserError for a request that the dataset cannot meet, with the largest value that works.
    """
    if spec.partition == "natural":
        raise UserError("partition 'natural' needs users, and these samples have none: choose another one")
    train_y = np.asarray(train_labels, dtype=np.int64)
    test_y = np.asarray(test_labels, dtype=np.int64)
    if spec.partition == "iid":
        # Without regard to classes: everything is of one kind.
        train_y, test_y, classes = np.zeros_like(train_y), np.zeros_like(test_y), 1
    _check_room(spec, np.bincount(train_y, minlength=classes), np.bincount(test_y, minlength=classes))
    train_pools = ClassPools(train_y, classes, rng)
    test_pools = ClassPools(test_y, classes, rng)
    if spec.partition == "iid":
        train = train_pools.take(np.full((spec.clients, 1), spec.samples_per_client))
        shares = np.ones((spec.clients, 1), dtype=np.int64)
    elif spec.partition == "dirichlet":
        assert spec.dirichlet_alpha is not None
        shares = dirichlet_counts(
            train_y, classes, spec.clients, spec.samples_per_client, spec.dirichlet_alpha, rng
        )
        train = train_pools.take(shares)
    else:
        train, shares = _by_classes(spec, train_pools, train_y, rng)
    test = test_pools.take(apportion(shares, spec.test_samples_per_client, rng))
    return Split(tuple(train), tuple(test))


def _by_classes(
    spec: SplitSpec, pools: ClassPools, labels: np.ndarray, rng: np.random.Generator
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the training parts and the class shares [K, C] of the test parts, for distinct and shards."""
    assert spec.classes_per_client is not None
    classes = len(pools.sizes)
    hands = deal_classes(spec.clients, spec.classes_per_client, classes, rng)
    if spec.partition == "distinct":
        hands = repair_duplicates(hands, classes, rng)
    dealt = np.zeros((spec.clients, classes), dtype=np.int64)
    np.add.at(dealt, (np.arange(spec.clients)[:, None], hands), 1)
    if spec.partition == "distinct":
        return pools.take(apportion(dealt, spec.samples_per_client, rng)), dealt
    shard_sizes = pools.sizes // np.maximum(dealt.sum(axis=0), 1)
    shards = pools.take(dealt * shard_sizes)
    train = [rng.permutation(pool)[: spec.samples_per_client] for pool in shards]
    # A short training part may miss a class that was dealt; such a class is not tested.
    present = Split(tuple(train), ()).class_counts(labels)
    dealt[:, : present.shape[1]] *= present > 0
    return train, dealt


def _check_room(spec: SplitSpec, train_sizes: np.ndarray, test_sizes: np.ndarray) -> None:
    """Raise a UserError where the images per class, int64 [C], do not suffice for `spec`.

    The limits hold for every deal, so that no seed fails where another works.
    """
    clients, least_train, least_test = spec.clients, int(train_sizes.min()), int(test_sizes.min())
    train_room = int(train_sizes.sum()) // clients
    train_reason = f"there are {train_sizes.sum():,} training images for {clients:,} clients"
    # In every partition but distinct a client may have a single class.
    test_room, test_reason = least_test, f"the smallest class has {least_test:,} test images"
    if spec.partition == "iid":
        test_reason = f"there are {least_test:,} test images"
    if spec.partition in ("distinct", "shards"):
        per_client, classes = spec.classes_per_client, len(train_sizes)
        assert per_client is not None
        if per_client > classes:
            raise UserError(
                f"classes_per_client is {per_client}, more than there are: give at most {classes}"
            )
        uses = math.ceil(clients * per_client / classes)
        train_room = per_client * (least_train // uses)
        train_reason = f"the smallest class has {least_train:,} training images for up to {uses:,} clients"
        if spec.partition == "distinct":
            test_room *= per_client
            if spec.samples_per_client < per_client:
                raise UserError(
                    f"samples_per_client is {spec.samples_per_client}, fewer than the {per_client} classes "
                    "per client: give at least one image for each"
                )
    for name, room, reason in (
        ("samples_per_client", train_room, train_reason),
        ("test_samples_per_client", test_room, test_reason),
    ):
        if getattr(spec, name) > room:
            remedy = f"give at most {room:,}" if room else "use fewer clients or another dataset"
            raise UserError(f"{name} is {getattr(spec, name):,}, but {reason}: {remedy}")
