"""Images of one's own for tests: folders and parquet files of scikit-learn's digits."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pfl_benchmark.cli import main
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.datasets.own import OWN_DATA


@pytest.fixture(autouse=True)
def restored(monkeypatch, tmp_path, registries_restored):
    """Every test begins without own data, and with a cache of its own."""
    monkeypatch.setenv(OWN_DATA, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def answer(capsys, *words):
    capsys.readouterr()
    assert main([str(word) for word in words]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def refused(capsys, tmp_path, text, parts):
    capsys.readouterr()
    runs = tmp_path / "runs"
    assert main(["--algo", "fedavg", "--dataset", text, "--results-dir", str(runs)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    for part in parts:
        assert part in err
    assert not runs.exists()


def save(pixels, path):
    """Write grey levels [1, H, W] as a PNG, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels[0]).save(path)


def digits_folder(root, count=None):
    """The digits as ``train/CLASS/0000.png`` and ``test/CLASS/0000.png``."""
    digits = datasets.load("digits")
    for half in ("train", "test"):
        part = getattr(digits, half)
        for number, (x, y) in enumerate(zip(part.x[:count], part.y[:count], strict=True)):
            save(x, root / half / str(y) / f"{number:04}.png")
    return root


def clients_folder(root, sizes=(30, 30, 30)):
    """Clients ``a``, ``b``, ... with so many digits each; every second one inverted (feature shift)."""
    digits, first = datasets.load("digits").train, 0
    for client, size in enumerate(sizes):
        for number in range(first, first + size):
            x = 255 - digits.x[number] if client % 2 else digits.x[number]
            save(x, root / "abcdefgh"[client] / str(digits.y[number]) / f"{number:04}.png")
        first += size
    return root


def encoded(pixels):
    """Grey levels [1, H, W] as the bytes of a PNG."""
    content = io.BytesIO()
    Image.fromarray(pixels[0]).save(content, "PNG")
    return content.getvalue()


def write_parquet(path, images, labels, **more):
    """A parquet file with these columns."""
    pq.write_table(pa.table({"image": images, "label": labels, **more}), path)
    return path
