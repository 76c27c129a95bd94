"""The field's own files: `leaf:PATH` and `pfllib:PATH`, foreign ones and those of `data --export`."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from own_images import answer, refused, restored  # noqa: F401

from pfl_benchmark.cli import main
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.datasets.own import describe_own
from pfl_benchmark.datasets.people.plays import ALPHABET

SHORT = ["--rounds", "2", "--local-epochs", "1", "--eval-every", "0", "--device", "cpu", "--json"]
FORMS = ("leaf", "pfllib")
RNG = np.random.default_rng(0)


def table_file(folder):
    frame = pd.DataFrame(RNG.normal(size=(90, 4)), columns=list("abcd")).assign(
        e=np.array(["x", "y", "z"])[np.arange(90) % 3], client=np.arange(90) // 30
    )
    frame.assign(label=(frame["a"] > 0).astype(int)).to_csv(folder / "own.csv", index=False)
    return f"csv:{folder / 'own.csv'}"


SPLITS = {
    "digits": lambda folder: ["digits", "--clients", "6", "--network", "cnn-digits"],
    "dirichlet": lambda folder: [
        "digits",
        "--dirichlet",
        "0.3",
        "--clients",
        "12",
        "--network",
        "cnn-digits",
    ],
    "words": lambda folder: ["synth-tweets", "--clients", "4", "--user-pool", "0", "--network", "rnn-tweets"],
    "table": lambda folder: [table_file(folder), "--network", "mlp"],
    "table of each": lambda folder: [table_file(folder), "--standardise", "client"],
}


def of_data(words):
    """The words that a split has, without those of training."""
    at = words.index("--network") if "--network" in words else len(words)
    return words[:at] + words[at + 2 :]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", SPLITS)
def test_exported_and_read_again_it_is_the_same_run(case, form, tmp_path, capsys):
    """The same split and, bit for bit, the same accuracies of all clients."""
    words = SPLITS[case](tmp_path)
    folder = tmp_path / "out" / "split"
    folder.parent.mkdir()
    exporting = ["data", "--dataset", *of_data(words), "--export", form, folder]
    made = answer(capsys, *exporting, "--json", "--out", tmp_path / "x.png")
    assert f"--dataset {form}:" in made["exported"]
    own = [f"{form}:{folder}", *(["--standardise", "client"] if "--standardise" in words else [])]
    protocol = ["--results-dir", tmp_path / "runs", *SHORT, "--lr", "0.05", "--participation", "0.5"]
    found = []
    for dataset in (words, own):
        network = words[words.index("--network") :][:2] if "--network" in words else []
        extra = network if dataset is own else []
        summary = answer(capsys, "--algo", "fedavg-ft", "--dataset", *dataset, *extra, *protocol)
        record = tmp_path / "runs" / summary["record"].split("/")[-1]
        found.append((summary["accuracy"], (record / "clients.csv").read_text()))
    assert found[0] == found[1]
    read = answer(capsys, "data", "--dataset", *own[:1], "--json", "--out", tmp_path / "x.png")
    sizes = [[(row["train"], row["test"]) for row in each["clients"]] for each in (made, read)]
    assert sizes[0] == sizes[1]
    assert read["unit"] == made["unit"]


def test_shakespeare_is_text_in_leaf(tmp_path):
    from pfl_benchmark.datasets.api import DATASETS, Dataset, Samples, Split
    from pfl_benchmark.datasets.export import export

    info = DATASETS["shakespeare"]
    samples = Samples(RNG.integers(0, len(ALPHABET), (40, 80)).astype(np.uint8), RNG.integers(0, 80, 40))
    dataset = info.holding(samples, samples, "here", users=np.arange(40) // 20)
    assert isinstance(dataset, Dataset)
    split = Split((np.arange(15), np.arange(20, 35)), (np.arange(15, 20), np.arange(35, 40)))
    for form in FORMS:
        export(form, tmp_path / form, info, dataset, split)
        read, values = describe_own(f"{form}:{tmp_path / form}")
        again = read.reader.load(read, (), False, 0)
        assert (values["partition"], read.kind, read.symbols) == ("given", "characters", len(ALPHABET))
        assert read.class_names == info.class_names
        assert (again.train.x == samples.x).all()
        assert (again.train.y == samples.y).all()
    content = json.loads((tmp_path / "leaf/train/all_data_train.json").read_text())
    assert content["user_data"]["0"]["x"][0] == "".join(ALPHABET[code] for code in samples.x[0])


@pytest.mark.parametrize("form", FORMS)
def test_an_export_does_not_overwrite(form, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert main(["data", "--dataset", "digits", "--export", form, str(tmp_path / "full")]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert main(["data", "--dataset", "digits", "--export", "leav", str(tmp_path / "new")]) == 2
    assert "(did you mean 'leaf'?)" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


# Foreign files


def leaf_of(root, x_of, y_of, users=4, halves=("train", "test"), size=10):
    for half in halves:
        data = {
            f"user{user}": {
                "x": [x_of(user, n) for n in range(size)],
                "y": [y_of(user, n) for n in range(size)],
            }
            for user in range(users)
        }
        content = {"users": list(data), "num_samples": [size] * users, "user_data": data}
        (root / half).mkdir(parents=True, exist_ok=True)
        (root / half / "all_data_niid_0_keep_0.json").write_text(json.dumps(content))
    return f"leaf:{root}"


def grey(user, number):
    return (np.random.default_rng(user).integers(0, 256, 784) / 255).tolist()


LEAF = {  # x, y, what it is
    "femnist": (grey, lambda user, n: n % 5, ("images", (1, 28, 28), "cnn-cifar10", 5)),
    "synthetic": (
        lambda user, n: RNG.normal(size=60).tolist(),
        lambda user, n: n % 3,
        ("rows", (60,), "mlp", 3),
    ),
    "shakespeare": (
        lambda user, n: ("To be, or not to be: " * 4)[n : n + 80].ljust(80),
        lambda user, n: "abc\n"[n % 4],
        ("characters", (80,), "rnn-characters", len(ALPHABET)),
    ),
    "sent140": (
        lambda user, n: ["1", "Mon", "NO_QUERY", "x", f"a tweet{'!' * n} ☺"],
        lambda user, n: n % 2,
        ("characters", (18,), "rnn-characters", 2),
    ),
}


@pytest.mark.parametrize("case", LEAF)
def test_data_of_leaf(case, tmp_path, capsys):
    x, y, (kind, shape, network, classes) = LEAF[case]
    text = leaf_of(tmp_path / "x", x, y)
    info, values = describe_own(text)
    assert (info.kind, info.shape, info.network, info.classes) == (kind, shape, network, classes)
    assert (values["partition"], values["clients"]) == ("given", 4)
    words = ["--algo", "fedavg", "--dataset", text, "--results-dir", tmp_path / "runs", *SHORT]
    assert answer(capsys, *words)["rounds"] == 2
    info, values = describe_own(leaf_of(tmp_path / "all", x, y, halves=("all_data",)))
    assert values["partition"] == "natural"


def test_users_and_labels_of_leaf_are_what_they_are(tmp_path):
    """One that is named twice is one, `1` and `01` are two, and 1.0 is the class 1."""
    text = leaf_of(tmp_path / "x", LEAF["synthetic"][0], lambda user, n: float(n % 2) if n < 5 else n % 2)
    for path in tmp_path.glob("x/*/*.json"):
        content = json.loads(path.read_text())
        data = dict(zip(["1", "01", "2", "3"], content["user_data"].values(), strict=True))
        path.write_text(json.dumps({"users": ["1", *data], "user_data": data}))
    info, values = describe_own(text)
    dataset = info.reader.load(info, (), False, 0)
    assert (len(dataset.train), values["clients"], info.class_names) == (80, 4, ("0", "1"))
    assert np.bincount(dataset.users).tolist() == [20, 20, 20, 20]


def test_no_class_in_leaf(tmp_path, capsys):
    text = leaf_of(tmp_path / "x", LEAF["synthetic"][0], lambda user, n: None if n == 3 else n % 2)
    refused(capsys, tmp_path, text, ["samples without a class (null)"])


def pfllib_of(root, x, classes=4, clients=4):
    for half in ("train", "test"):
        (root / half).mkdir(parents=True)
        for client in range(clients):
            y = np.arange(len(x(client))) % classes
            content = {"x": x(client), "y": y}
            np.savez_compressed(root / half / f"{client}.npz", data=content)
    (root / "config.json").write_text(json.dumps({"num_clients": clients, "num_classes": classes}))
    return f"pfllib:{root}"


PFLLIB = {
    "mnist": (
        lambda c: ((RNG.integers(0, 256, (12, 1, 28, 28)) / 255 - 0.5) / 0.5).astype(np.float32),
        ("images", (1, 28, 28), "cnn-cifar10"),
    ),
    "cifar": (
        lambda c: ((RNG.integers(0, 256, (12, 3, 32, 32)) / 255 - 0.5) / 0.5).astype(np.float32),
        ("images", (3, 32, 32), "cnn-cifar10"),
    ),
    "phones": (
        lambda c: RNG.normal(size=(12, 9, 1, 128)).astype(np.float32),
        ("series", (9, 128), "cnn-series"),
    ),
    "features": (lambda c: RNG.normal(size=(12, 20)), ("rows", (20,), "mlp")),
    "text": (lambda c: RNG.integers(0, 50, (12, 30)), ("characters", (30,), "rnn-characters")),
}


@pytest.mark.parametrize("case", PFLLIB)
def test_data_of_pfllib(case, tmp_path, capsys):
    x, (kind, shape, network) = PFLLIB[case]
    text = pfllib_of(tmp_path / "x", x)
    info, values = describe_own(text)
    assert (info.kind, info.shape, info.network, info.classes) == (kind, shape, network, 4)
    assert (values["partition"], values["clients"]) == ("given", 4)
    words = ["--algo", "fedavg", "--dataset", text, "--results-dir", tmp_path / "runs", *SHORT]
    assert answer(capsys, *words)["rounds"] == 2


def test_clients_keep_the_order_of_their_numbers(tmp_path):
    text = pfllib_of(
        tmp_path / "x", lambda c: np.full((8, 3), float(c)) + np.arange(24).reshape(8, 3), clients=12
    )
    info, _ = describe_own(text)
    dataset = info.reader.load(info, (), False, 0)
    split = datasets.PARTITIONERS["given"](12, 1, 1).split(dataset, np.random.default_rng(0))
    assert [dataset.train.x[rows[0], 0] for rows in split.train] == list(range(12))


class Attack:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def replaced(content):
    def change(root):
        np.savez(root / "train" / "1.npz", data=content(root))

    return change


def test_pickles_of_pfllib_cannot_run_code(tmp_path, capsys):
    text = pfllib_of(tmp_path / "x", PFLLIB["features"][0])
    mark = tmp_path / "ran"
    replaced(lambda root: np.array({"x": Attack(mark), "y": np.arange(3)}, dtype=object))(tmp_path / "x")
    refused(capsys, tmp_path, text, ["1.npz could not be read", "PFLlib's dictionary"])
    assert not mark.exists()
    pickle.loads(pickle.dumps(Attack(mark)))
    assert mark.exists()  # it is an attack


ODD = {
    "no half": (lambda root: [path.unlink() for path in (root / "test").iterdir()], ["no files test/*.npz"]),
    "a client's half": (lambda root: (root / "test/2.npz").unlink(), ["no test/2.npz beside its other half"]),
    "no archive": (lambda root: (root / "train/1.npz").write_bytes(b"x"), ["1.npz could not be read"]),
    "an array": (replaced(lambda root: np.arange(3)), ["1.npz could not be read", "int64 [3]"]),
    "no x": (replaced(lambda root: np.array({"y": np.arange(3)}, dtype=object)), ["1.npz could not be read"]),
    "other numbers": (
        replaced(lambda root: np.array({"x": np.zeros((4, 20)), "y": np.arange(3)}, dtype=object)),
        ["as many labels as samples"],
    ),
    "another shape": (
        replaced(lambda root: np.array({"x": np.zeros((3, 5)), "y": np.arange(3)}, dtype=object)),
        ["different shapes"],
    ),
    "not finite": (
        replaced(lambda root: np.array({"x": np.full((3, 20), np.nan), "y": np.arange(3)}, dtype=object)),
        ["not finite"],
    ),
    "config": (lambda root: (root / "config.json").write_text("["), ["PFLlib's config.json"]),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_files_of_pfllib(case, tmp_path, capsys):
    change, parts = ODD[case]
    text = pfllib_of(tmp_path / "x", PFLLIB["features"][0])
    change(tmp_path / "x")
    refused(capsys, tmp_path, text, parts)


ODD_X = {
    "names of files": (lambda user, n: "0001.jpg", ["names of files"]),
    "different lengths": (lambda user, n: [0.5] * (n + 1), ["lists of different lengths"]),
    "nothing": (lambda user, n: "", ["no text"]),
    "one number": (lambda user, n: 0.5, ["samples are one number"]),
}


@pytest.mark.parametrize("case", ODD_X)
def test_odd_samples_of_leaf(case, tmp_path, capsys):
    x, parts = ODD_X[case]
    refused(capsys, tmp_path, leaf_of(tmp_path / "x", x, lambda user, n: n % 2), parts)


@pytest.mark.parametrize("form", FORMS)
def test_bad_places(form, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for name in ("none", "empty", "empty@32"):
        refused(capsys, tmp_path, f"{form}:{tmp_path / name}", [str(tmp_path)])
    one = (
        leaf_of(tmp_path / "one", grey, lambda user, n: 1)
        if form == "leaf"
        else pfllib_of(tmp_path / "one", PFLLIB["features"][0], classes=1)
    )
    refused(capsys, tmp_path, one, ["has one class"])


@pytest.mark.parametrize("form", FORMS)
def test_an_export_that_was_changed(form, tmp_path, capsys):
    folder = tmp_path / "x"
    assert (
        main(["data", "--dataset", "digits", "--export", form, str(folder), "--out", str(tmp_path / "x.png")])
        == 0
    )
    path = folder / ("config.json" if form == "pfllib" else "train/all_data_train.json")
    content = json.loads(path.read_text())
    content["pfl_benchmark"]["shape"] = [1, 9, 9]
    path.write_text(json.dumps(content))
    parts = ["was exported by this program and changed since"]
    if form == "leaf":
        parts = ["says of the data what other files beside it do not"]
    refused(capsys, tmp_path, f"{form}:{folder}", parts)
    assert Path(folder).exists()
