"""Every registered dataset: its constants, and its arrays where its files are at hand.

The files are looked for as users have it: in PFL_DATA_DIR, in system folders and in the user's cache.
"""

import numpy as np
import pytest

from pfl_benchmark.datasets.api import DATASETS, load
from pfl_benchmark.datasets.data import PADDING, UNKNOWN, DatasetInfo
from pfl_benchmark.errors import UserError


@pytest.fixture(params=list(DATASETS))
def info(request):
    return DATASETS[request.param]


@pytest.fixture
def dataset(info):
    try:
        return load(info.name, download=False)
    except UserError as error:
        if "was not found" not in str(error):
            raise
        pytest.skip(f"no files of {info.name} here: set PFL_DATA_DIR to a folder that holds them")


def test_constants(info):
    assert DATASETS[info.name] is info
    assert len(info.shape) == {"images": 3, "words": 1, "characters": 1, "series": 2}[info.kind]
    assert len(info.mean) == len(info.std) == (info.shape[0] if info.kind == "images" else 0)
    assert bool(info.symbols) == (info.kind == "characters")
    assert len(set(info.class_names)) == info.classes
    assert (info.builtin is not None) + bool(info.layouts) + info.by_users == 1
    assert info.licence != DatasetInfo.licence, "give the data's licence, or say that there is none"
    assert info.citation != DatasetInfo.citation, "give what to cite"


def test_arrays(info, dataset):
    assert dataset.classes == info.classes == len(dataset.class_names)
    for samples in (dataset.train, dataset.test):
        assert samples.x.dtype == {"words": np.int32, "series": np.float32}.get(info.kind, np.uint8)
        assert samples.y.dtype == np.int64
        assert samples.x.shape == (len(samples), *info.shape)
        # No role speaks of every character.
        assert info.kind == "characters" or set(np.unique(samples.y)) == set(range(info.classes))
        assert samples.y.min() >= 0
        assert samples.y.max() < info.classes
    assert dataset.source
    assert "\n" not in dataset.source
    if not info.needs_files:
        assert info.sizes == (len(dataset.train), 0 if info.by_users else len(dataset.test))
    if not info.by_users:
        assert ("partial" in dataset.source) == ((len(dataset.train), len(dataset.test)) != info.sizes)


def test_texts(info, dataset):
    if info.kind != "words":
        pytest.skip(f"{info.name} holds {info.unit}")
    x, vectors = dataset.train.x, dataset.vectors
    assert dataset.test is dataset.train
    assert dataset.users.shape == dataset.train.y.shape
    assert (np.bincount(dataset.users) >= 10).all()
    assert (x.min(), x.max()) == (PADDING, len(vectors) - 1)
    assert (vectors.dtype, vectors.ndim) == (np.float32, 2)
    assert not vectors[[PADDING, UNKNOWN]].any()
    assert vectors[2:].any(axis=1).all()
    # Padding stands behind the end only; some words have no vector.
    assert (np.diff((x == PADDING).astype(int), axis=1) >= 0).all()
    assert (x == UNKNOWN).any()


def test_users_and_their_groups(info, dataset):
    if not info.by_users:
        pytest.skip(f"{info.name} has no users")
    assert dataset.test is dataset.train
    assert set(np.unique(dataset.users)) == set(range(dataset.users.max() + 1))
    if dataset.groups is not None:
        assert len(np.unique(np.stack([dataset.groups, dataset.users]), axis=1).T) == len(
            np.unique(dataset.groups)
        )  # a group has one user


def test_normalisation_constants(info, dataset):
    if info.kind != "images":
        pytest.skip(f"{info.name} holds {info.unit}")
    levels = np.arange(256) / 255
    for channel, (mean, std) in enumerate(zip(dataset.mean, dataset.std, strict=True)):
        share = (
            np.bincount(dataset.train.x[:, channel].ravel(), minlength=256) / dataset.train.x[:, channel].size
        )
        assert share @ levels == pytest.approx(mean, abs=0.003)
        assert np.sqrt(share @ (levels - mean) ** 2) == pytest.approx(std, abs=0.003)


def test_digits_are_split_by_class():
    digits = load("digits")
    assert (len(digits.train), len(digits.test)) == (1347, 450)
    assert (np.bincount(digits.test.y) == 45).all()
    assert digits.train.x.min() == 0
    assert digits.train.x.max() == 255
    assert len(np.unique(digits.train.x)) == 17
    # The images themselves, so that another version of scikit-learn cannot change the split unseen.
    weights = np.arange(1, 451)
    assert int(digits.test.x.sum(axis=(1, 2, 3), dtype=np.int64) @ weights) == 500_758_611
