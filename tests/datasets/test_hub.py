"""`hf:OWNER/NAME`: from a server in this process that answers as the Hugging Face Hub; no network."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from own_images import answer, encoded, refused, restored  # noqa: F401

from pfl_benchmark.datasets.api import load
from pfl_benchmark.datasets.own import describe_own

pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed (the extra hf)")
SHA = "0123456789abcdef0123456789abcdef01234567"
NAMES = [f"digit {number}" for number in range(10)]


class Hub(BaseHTTPRequestHandler):
    """One data set, ``one/digits``, with the files of the class."""

    files: dict[str, bytes] = {}  # noqa: RUF012

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.partition("?")[0]
        _, _, file = path.partition(f"/datasets/one/digits/resolve/{SHA}/")
        if path.startswith("/api/datasets/one/digits"):
            siblings = [{"rfilename": name} for name in self.files]
            body = json.dumps({"id": "one/digits", "sha": SHA, "siblings": siblings}).encode()
        elif file in self.files:
            body = self.files[file]
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", SHA)
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


def table(rows, image="img", label="fine_label", names=True, hidden=False):
    digits = load("digits").train
    images = [{"bytes": encoded(x), "path": None} for x in digits.x[rows]]
    made = pa.table({image: images, label: digits.y[rows] * 0 - 1 if hidden else digits.y[rows]})
    if names:
        features = {"info": {"features": {label: {"names": NAMES, "_type": "ClassLabel"}}}}
        made = made.replace_schema_metadata({"huggingface": json.dumps(features)})
    sink = pa.BufferOutputStream()
    pq.write_table(made, sink)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    handler = type("Own", (Hub,), {"files": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        yield handler.files
        server.shutdown()
        thread.join()


HALVES = {
    "shards": [
        *(f"data/train-0000{shard}-of-00002.parquet" for shard in range(2)),
        "data/test-00000-of-00001.parquet",
    ],
    "converted": [
        *(f"default/train/000{shard}.parquet" for shard in range(2)),
        "default/validation/0000.parquet",
    ],
    "plain": ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet", "valid.parquet"],
}  # fmt: skip


@pytest.mark.parametrize("form", HALVES)
def test_train_and_test_of_the_hub(form, hub, tmp_path, capsys):
    parts = (slice(0, 150), slice(150, 300), slice(300, 500))
    hub.update(zip(HALVES[form], map(table, parts), strict=True))
    info, _ = describe_own("hf:one/digits")
    train, test = info.builtin()
    digits = load("digits").train
    assert (train.x == digits.x[:300]).all()
    assert (test.y == digits.y[300:500]).all()
    assert info.class_names == tuple(NAMES)
    assert SHA in info.origin
    words = ["--algo", "fedavg", "--dataset", "hf:one/digits", "--results-dir", tmp_path / "runs", "--json"]
    words += ["--rounds", "1", "--local-epochs", "1", "--eval-every", "0", "--device", "cpu"]
    assert answer(capsys, *words)["rounds"] == 1


def test_one_split_a_side_and_names_of_columns(hub, capsys, tmp_path):
    hub["data/train-00000-of-00001.parquet"] = table(slice(0, 200), "picture", "a", names=False)
    hub["data/extra-00000-of-00001.parquet"] = table(slice(200, 400), "picture", "a", names=False)
    info, _ = describe_own("hf:one/digits:extra@16?label=a,revision=main")
    assert info.shape == (1, 16, 16)
    assert info.class_names == tuple("0123456789")
    train, test = info.builtin()
    digits = load("digits").train.y[200:400]
    assert sorted(np.concatenate([train.y, test.y])) == sorted(digits)
    words = ["data", "--dataset", "hf:one/digits:extra", "--columns", "image=picture,label=a", "--json"]
    assert answer(capsys, *words, "--out", tmp_path / "x.png")["unit"] == "images"


BAD = {
    "hf:digits": ["expected OWNER/NAME"],
    "hf:one/none": ["could not be fetched", "check the name"],
    "hf:one/digits:trian": ["no split trian (did you mean 'train'?)"],
    "hf:one/digits?label=none": ["has no column none"],
}


@pytest.mark.parametrize("text", BAD)
def test_bad_names(text, hub, tmp_path, capsys):
    hub["data/train-00000-of-00001.parquet"] = table(slice(0, 200))
    refused(capsys, tmp_path, text, BAD[text])


FILES = {
    "none": ({"a.csv": b""}, ["has no parquet files"]),
    "configurations": (
        {f"{name}/train-00000-of-00001.parquet": b"" for name in "ab"},
        ["several configurations (a, b)"],
    ),
    "other splits": ({"a/x.parquet": b"", "a/y.parquet": b""}, ["has the splits x, y; name one"]),
    "secret classes": (
        {"train.parquet": table(slice(0, 200)), "test.parquet": table(slice(200, 220), hidden=True)},
        ["samples without a class (label -1)"],
    ),
    "damaged": ({"train.parquet": b"PAR1 no"}, ["complete parquet file"]),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_bad_files(case, hub, tmp_path, capsys):
    files, parts = FILES[case]
    hub.update(files)
    refused(capsys, tmp_path, "hf:one/digits", parts)
