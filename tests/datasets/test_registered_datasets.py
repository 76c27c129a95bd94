"""Every registered dataset: its constants, and its arrays where its files are at hand.

The files are looked for as users have it: in PFL_DATA_DIR, in system folders and in the user's cache.
"""

import numpy as np
import pytest

from benchmark.errors import UserError
from datasets import DATASETS, load


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
    assert len(info.shape) == 3
    assert len(info.mean) == len(info.std) == info.shape[0]
    assert len(set(info.class_names)) == info.classes
    assert (info.builtin is None) == bool(info.layouts)


def test_arrays(info, dataset):
    assert dataset.classes == info.classes == len(dataset.class_names)
    for samples in (dataset.train, dataset.test):
        assert samples.x.dtype == np.uint8
        assert samples.y.dtype == np.int64
        assert samples.x.shape == (len(samples), *info.shape)
        assert set(np.unique(samples.y)) == set(range(info.classes))
    assert dataset.source
    assert "\n" not in dataset.source
    assert ("partial" in dataset.source) == ((len(dataset.train), len(dataset.test)) != info.sizes)


def test_normalisation_constants(dataset):
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
