"""The table and the picture of a split."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from pfl_benchmark.datasets.api import PARTITIONERS, load
from pfl_benchmark.datasets.describe import split_picture, split_table


@pytest.fixture(scope="module")
def digits():
    return load("digits")


@pytest.fixture(params=[("distinct", 2), ("dirichlet", 0.3)])
def split(request, digits):
    partitioner, option = request.param
    return PARTITIONERS[partitioner](20, 30, 10, option).split(digits, np.random.default_rng(0))


def test_table(split, digits):
    table = split_table(split, digits)
    assert table.index.name == "client"
    assert len(table) == 20
    assert table["train"].sum() == 600
    assert (table["test"] == 10).all()
    for part, row in zip(split.train, table.itertuples(), strict=True):
        names = row.class_names.split(", ")
        counts = np.bincount(digits.train.y[part], minlength=10)
        assert row.classes == len(names) == (counts > 0).sum()
        assert [counts[int(name)] for name in names] == sorted(counts[counts > 0], reverse=True)


def test_picture(split, digits, tmp_path):
    path = tmp_path / "new" / "split.png"
    split_picture(split, digits, path, 200)
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert image.width == 1500
        assert len(image.convert("RGB").getcolors(maxcolors=2**20)) > 3


def test_of_many_clients_columns_are_quantiles(digits, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.update(axes=figure.axes))
    split = PARTITIONERS["dirichlet"](300, 4, 1, 0.3).split(digits, np.random.default_rng(0))
    for most, columns in ((300, 300), (200, 101)):
        split_picture(split, digits, tmp_path / "split.png", most)
        heat = next(axes for axes in drawn["axes"] if axes.images)
        shown = heat.images[0].get_array()
        assert shown.shape == (10, columns)
    counts = split.class_counts(digits.train.y)
    assert shown.filled(0)[:, -1].tolist() == counts.max(axis=0).tolist()
    assert (np.diff(shown.filled(0)) >= 0).all()
    assert heat.get_xlabel().startswith("clients in each row")
