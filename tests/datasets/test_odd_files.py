"""Files that are whole but not what they should be, and caches of other arrays: one line, or read again."""

import pickle
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import LAYOUTS, info_of

from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.datasets.layouts.pickles import CifarPickles
from pfl_benchmark.errors import UserError


@pytest.fixture
def made(tmp_path, monkeypatch):
    """``made("idx")``: the folder of a dataset's files; ``load()``: reads them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))

    def make(kind):
        layout, write = LAYOUTS[kind]
        monkeypatch.setattr("pfl_benchmark.datasets.loading.DATASETS", {"made": info_of("made", layout)})
        folder = tmp_path / "data" / "files"
        folder.mkdir(parents=True)
        write(folder, np.random.default_rng(0))
        return folder

    return make


def load(folder):
    return datasets.load("made", folder.parent, download=False)


def refused(folder, *parts):
    with pytest.raises(UserError) as told:
        load(folder)
    assert "\n" not in str(told.value)
    for part in parts:
        assert part in str(told.value)


@pytest.mark.parametrize("sizes", [(-30,), (-1, -30), (2**31 - 1,)], ids=str)
def test_sizes_of_an_idx_file_that_cannot_be(sizes, made):
    folder = made("idx")
    labels = bytes(range(10)) * 3
    header = struct.pack(f">4B{len(sizes)}i", 0, 0, 8, 1, *sizes)
    (folder / "train-labels-idx1-ubyte").write_bytes(header + labels)
    refused(folder, "train-labels-idx1-ubyte", "a complete idx1-ubyte file")


TABLES = {
    "text for images": {"image": ["a"] * 30, "label": list(range(10)) * 3},
    "numbers for images": {"image": [1.5] * 30, "label": list(range(10)) * 3},
    "text for bytes": {"image": [{"bytes": "a", "path": None}] * 30, "label": list(range(10)) * 3},
    "real labels": {"image": [{"bytes": b"a", "path": None}] * 30, "label": [0.5] * 30},
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_columns_of_another_kind(table, made):
    folder = made("parquet")
    pq.write_table(pa.table(table), folder / "train.parquet")
    refused(folder, "train.parquet", "the columns")


def test_a_column_that_is_there_twice(made):
    folder = made("parquet")
    table = pq.read_table(folder / "train.parquet")
    pq.write_table(table.append_column("label", table["label"]), folder / "train.parquet")
    refused(folder, "train.parquet", "the columns")


@pytest.mark.parametrize("label", [10, -1, 2**40])
def test_labels_beyond_range(label, made):
    folder = made("parquet")
    table = pq.read_table(folder / "train.parquet")
    table = table.set_column(1, "label", pa.array([label] * 30))
    pq.write_table(table, folder / "train.parquet")
    refused(folder, "training files", "labels")


def test_shards_of_none(made):
    folder = made("parquet")
    (folder / "train.parquet").rename(folder / "train-00000-of-00000.parquet")
    refused(folder, "train.parquet is missing")


@pytest.mark.parametrize("key", ["data", "labels"])
def test_pickles_of_real_numbers(key, tmp_path):
    batch = {"data": np.zeros((3, 12), np.uint8), "labels": [0, 1, 2]}
    batch[key] = np.asarray(batch[key]) + np.nan
    (tmp_path / "batch").write_bytes(pickle.dumps(batch))
    layout = CifarPickles("", ("batch",), ("batch",), "labels")
    with pytest.raises(UserError, match="a pickled CIFAR batch"):
        layout.read([tmp_path / "batch"], (3, 2, 2), "train")


CACHES = {
    "other images": lambda arrays: arrays | {"train_x": arrays["train_x"][:, :, :5]},
    "labels beyond range": lambda arrays: arrays | {"test_y": arrays["test_y"] + 9},
    "fewer labels": lambda arrays: arrays | {"test_y": arrays["test_y"][1:]},
    "no numbers": lambda arrays: arrays | {"train_x": arrays["train_x"] + np.nan},
    "nothing": lambda arrays: {},
}


@pytest.mark.parametrize("change", CACHES.values(), ids=CACHES)
def test_a_cache_of_other_arrays_is_rebuilt(change, made):
    folder = made("parquet")
    before = load(folder).checksum
    (cache,) = (folder / ".pfl-cache").glob("*.npz")
    np.savez(cache, **change(dict(np.load(cache))))
    assert load(folder).checksum == before
    assert dict(np.load(cache))["train_x"].shape == (30, 1, 28, 28)
