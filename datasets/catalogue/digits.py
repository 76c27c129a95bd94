"""Handwritten digits, 8x8, that scikit-learn carries in its package: real data without a download."""

from __future__ import annotations

from functools import cache

import numpy as np

from pfl_benchmark.datasets.data import DatasetInfo, Samples

__all__ = ["INFO"]

_TEST_PER_CLASS = 45


@cache
def _parsed() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's images and labels: text that every run of a table would parse again."""
    from sklearn.datasets import load_digits  # takes a second to import; only this dataset needs it

    bunch = load_digits()
    return bunch.images, bunch.target


def _read() -> tuple[Samples, Samples]:
    """Return the fixed split: 45 test images of each class (450), the other 1,347 for training.

    The test images of a class are taken at even distances over scikit-learn's order, by integer arithmetic
    alone, so the split is the same on every machine and with every version.
    """
    images, labels = _parsed()
    # Grey levels are 0..16.
    x = ((images.astype(np.int64) * 255 + 8) // 16).astype(np.uint8)[:, None]
    y = labels.astype(np.int64)
    is_test = np.zeros(len(y), dtype=bool)
    for label in range(10):
        where = np.flatnonzero(y == label)
        is_test[where[(2 * np.arange(_TEST_PER_CLASS) + 1) * len(where) // (2 * _TEST_PER_CLASS)]] = True
    return Samples(x[~is_test], y[~is_test]), Samples(x[is_test], y[is_test])


INFO = DatasetInfo(
    name="digits",
    title="scikit-learn digits",
    class_names=tuple("0123456789"),
    shape=(1, 8, 8),
    sizes=(1_347, 450),
    mean=(0.3060,),
    std=(0.3763,),
    builtin=_read,
    origin="comes with scikit-learn",
    licence="CC BY 4.0 (UCI, Optical Recognition of Handwritten Digits)",
    citation='E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998',
    network="cnn-digits",
)
