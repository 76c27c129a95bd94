"""Images of one's own: `folder:PATH` and `parquet:PATH`."""

import os
import shutil
import sys

import numpy as np
import pytest
from own_images import (  # noqa: F401
    answer,
    clients_folder,
    digits_folder,
    encoded,
    refused,
    restored,
    save,
    write_parquet,
)
from PIL import Image

from pfl_benchmark import run
from pfl_benchmark.cli import main
from pfl_benchmark.config import own_data
from pfl_benchmark.config.settings import SETTINGS
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.datasets.own import OWN_DATA, describe_own
from pfl_benchmark.datasets.registry import DATASETS, MODULES
from pfl_benchmark.errors import UserError
from pfl_benchmark.models import NETWORKS

SHORT = ["--rounds", "2", "--local-epochs", "1", "--eval-every", "0", "--device", "cpu", "--json"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return digits_folder(tmp_path_factory.mktemp("own") / "my digits")


def test_digits_in_a_folder_are_the_digits(digits, tmp_path, capsys):
    """The same split, bit for bit the same run."""
    split = ["--partition", "distinct", "--classes-per-client", "2", "--clients", "20"]
    split += ["--samples-per-client", "60", "--test-samples-per-client", "20"]
    protocol = ["--participation", "0.25", "--lr", "0.08", "--results-dir", tmp_path / "runs", *SHORT]
    found = {}
    for dataset in ("digits", f"folder:{digits}"):
        about = answer(
            capsys, "data", "--dataset", dataset, *split, "--json", "--out", tmp_path / "split.png"
        )
        summary = answer(capsys, "--algo", "fedper", "--dataset", dataset, *split, *protocol)
        told = (about["checksum"], about["data_checksum"], about["network"], about["shape"])
        clients = (tmp_path / "runs" / summary["record"].split("/")[-1] / "clients.csv").read_text()
        found[dataset] = (*told, summary["accuracy"], summary["bytes_up"], clients)
    assert found["digits"] == found[f"folder:{digits}"]
    own = DATASETS[own_data._LOADED[f"folder:{digits}"]]
    assert (own.mean, own.std) == (DATASETS["digits"].mean, DATASETS["digits"].std)


def test_the_name_follows_the_content(tmp_path):
    """The same images elsewhere are the same dataset; other labels are another one, in spite of the cache."""
    one = digits_folder(tmp_path / "a" / "Some Digits", 60)
    other = shutil.copytree(one, tmp_path / "b" / "Some Digits")
    name = describe_own(f"folder:{one}")[0].name
    assert name.startswith("some-digits-")
    assert describe_own(f"folder:{other}")[0].name == name
    file = next((other / "train" / "3").iterdir())
    file.rename(other / "train" / "4" / file.name)
    assert describe_own(f"folder:{other}")[0].name != name


def test_without_a_test_folder_images_are_held_out(tmp_path):
    digits_folder(tmp_path / "x", 300)
    info, values = describe_own(f"folder:{tmp_path / 'x' / 'train'}")
    train, test = info.builtin()
    labels = datasets.load("digits").train.y[:300]
    for label in range(10):
        count = int((labels == label).sum())
        assert int((test.y == label).sum()) == count // 5
    assert len(train) + len(test) == 300
    partitioner = datasets.PARTITIONERS["dirichlet"]
    assert values["clients"] * values["samples_per_client"] <= len(train)
    assert issubclass(partitioner, datasets.PARTITIONERS[values["partition"]])


def test_the_smallest_class_limits_the_test_and_that_is_said(tmp_path):
    digits_folder(tmp_path / "x", 300)
    rare = tmp_path / "x" / "train" / "7"
    for file in sorted(rare.iterdir())[6:]:
        file.unlink()
    info, values = describe_own(f"folder:{tmp_path / 'x' / 'train'}")
    assert values["test_samples_per_client"] == 1
    assert "at most 1 test images a client, as many as the smallest class has" in info.origin


def test_a_subfolder_a_client(tmp_path, capsys):
    root = clients_folder(tmp_path / "people", (40, 30, 20, 3))
    data = ["--dataset", f"folder:{root}"]
    about = answer(capsys, "data", *data, "--json", "--out", tmp_path / "split.png")
    assert [row["train"] + row["test"] for row in about["clients"]] == [40, 30, 20]
    assert "4 clients (a, b, c, d), of whom 1 have fewer than 5 images" in about["source"]
    summary = answer(capsys, "--algo", "fedavg-ft", *data, "--results-dir", tmp_path / "runs", *SHORT)
    assert summary["rounds"] == 2


def test_parquet_is_the_folder(tmp_path, capsys):
    """A domain a client: encoded bytes or structs, names or numbers, give the same samples."""
    root, rows = clients_folder(tmp_path / "x"), []
    for path in sorted(root.rglob("*.png"), key=lambda path: path.name):
        rows.append((path.read_bytes(), path.parent.name, path.parent.parent.name))
    images, labels, clients = (list(column) for column in zip(*rows, strict=True))
    plain = write_parquet(tmp_path / "plain.parquet", images, labels, client=clients)
    structs = [{"bytes": image, "path": None} for image in images]
    numbers = ["abc".index(client) for client in clients]
    hub = write_parquet(tmp_path / "hub.parquet", structs, [int(label) for label in labels], client=numbers)
    found = [describe_own(text)[0] for text in (f"folder:{root}", f"parquet:{plain}", f"parquet:{hub}")]
    loaded = [info.reader.load(info, (), False, 0) for info in found]
    assert len({dataset.checksum for dataset in loaded}) == 1
    assert loaded[0].users.tolist() == numbers
    inverted = loaded[0].train.x[np.array(numbers) == 1]
    assert (inverted == 255 - datasets.load("digits").train.x[30:60]).all()


def test_parquet_with_test_rows(tmp_path):
    digits = datasets.load("digits")
    for half, count in (("train", 100), ("test", 50)):
        part = getattr(digits, half)
        images = [encoded(x) for x in part.x[:count]]
        write_parquet(tmp_path / f"{half}.parquet", images, part.y[:count])
    train, test = describe_own(f"parquet:{tmp_path}")[0].builtin()
    assert (train.x == digits.train.x[:100]).all()
    assert (test.y == digits.test.y[:50]).all()


def test_scaling_and_colours(tmp_path):
    """One coloured image makes all of them coloured; sizes may differ if a side is given."""
    root = digits_folder(tmp_path / "x", 40)
    Image.new("RGB", (20, 10), (255, 0, 0)).save(root / "train" / "0" / "zz.png")
    info, _ = describe_own(f"folder:{root}@16")
    assert (info.shape, info.network) == ((3, 16, 16), "cnn-cifar10")
    train, _ = info.builtin()
    assert train.x[-1][:, 8, 8].tolist() == [255, 0, 0]
    assert (train.x[0][0] == train.x[0][1]).all()
    # A folder that is really called so is meant as it is.
    plain = digits_folder(tmp_path / "y@16", 40)
    assert describe_own(f"folder:{plain}")[0].shape == (1, 8, 8)
    assert describe_own(f"folder:{plain}@20")[0].shape == (1, 20, 20)


def test_records_can_be_verified_and_workers_find_the_data(digits, tmp_path, capsys, monkeypatch):
    words = ["--algo", "fedavg", "--dataset", f"folder:{digits}", "--results-dir", tmp_path, *SHORT]
    record = answer(capsys, *words)["record"]
    assert os.environ[OWN_DATA] == f"folder:{digits}"
    for registry in (DATASETS, MODULES, SETTINGS, NETWORKS):
        registry.pop(own_data._LOADED[f"folder:{digits}"])
    own_data._LOADED.clear()
    monkeypatch.setenv(OWN_DATA, "")
    assert main(["verify", record]) == 2
    assert "--plugin folder:PATH" in capsys.readouterr().err
    answer(capsys, "--algo", "fedavg", "--dataset", "digits", "--results-dir", tmp_path, *SHORT)
    assert main(["verify", str(tmp_path)]) == 0  # the other one
    assert "left out: 1 on data that are not here" in capsys.readouterr().err
    assert main(["verify", record, "--plugin", f"folder:{digits}"]) == 0
    assert "bit-equal" in capsys.readouterr().out


def hub_file(path, change=lambda columns: None):
    """Digits with the columns that CIFAR-100 has on the Hub."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    digits = datasets.load("digits").train
    columns = {
        "img": [{"bytes": encoded(x), "path": None} for x in digits.x[:200]],
        "fine_label": digits.y[:200].tolist(),
        "coarse_label": (digits.y[:200] // 5).tolist(),
        "who": [0, 1, 2, 3] * 50,
    }
    change(columns)
    pq.write_table(pa.table(columns), path)
    return path


def test_columns_by_other_names_and_their_records(tmp_path, capsys, monkeypatch):
    """The same dataset as with the usual names; records of it resume and are verified."""
    file = hub_file(tmp_path / "digits.parquet")
    (tmp_path / "b").mkdir()
    renamed = hub_file(
        tmp_path / "b" / file.name,
        lambda c: [c.update(image=c.pop("img")), c.update(label=c.pop("fine_label"))],
    )
    words = ["--dataset", f"parquet:{file}", "--columns", "image=img,label=fine_label"]
    run_words = ["--algo", "fedavg", *words, "--results-dir", tmp_path / "runs", *SHORT]
    record = answer(capsys, *run_words)["record"]
    assert describe_own(f"parquet:{renamed}")[0].name in record
    assert answer(capsys, *run_words)["record"] == record
    shown = ["--json", "--out", tmp_path / "split.png"]
    coarse = answer(capsys, "data", *words[:2], "--columns", "image=img, label=coarse_label", *shown)
    assert (coarse["dataset_classes"], "coarse_label" in coarse["source"]) == (2, True)
    people = answer(capsys, "data", *words[:3], f"{words[3]},client=who", *shown)
    assert len(people["clients"]) == 4
    for registry in (DATASETS, MODULES, SETTINGS, NETWORKS):
        for name in own_data._LOADED.values():
            registry.pop(name, None)
    own_data._LOADED.clear()
    monkeypatch.setenv(OWN_DATA, "")
    assert main(["verify", record]) == 2
    capsys.readouterr()
    assert main(["verify", record, "--plugin", f"parquet:{file}?image=img,label=fine_label"]) == 0
    assert "bit-equal" in capsys.readouterr().out


def test_columns_in_python(tmp_path):
    file = hub_file(tmp_path / "digits.parquet")
    short = {
        "rounds": 1,
        "local_epochs": 1,
        "device": "cpu",
        "progress": False,
        "results_dir": tmp_path / "runs",
    }
    columns = {"image": "img", "label": "fine_label"}
    record = run("fedavg", dataset=f"parquet:{file}", columns=columns, **short)
    assert record.config.dataset.startswith("digits-")
    for wrong, message in (
        ({"dataset": "digits", "columns": columns}, "^columns is for dataset='parquet:PATH'"),
        ({"dataset": f"parquet:{file}", "columns": "image=img"}, "^columns is 'image=img'; expected names"),
        ({"dataset": f"parquet:{file}", "columns": {"image": "imgs"}}, "no column imgs .did you mean 'img'"),
        ({"dataset": f"parquet:{file}"}, r'such as columns=\{"image": "img", "label": "fine_label"\}'),
    ):
        with pytest.raises(UserError, match=message):
            run("fedavg", **wrong, **short)


@pytest.mark.parametrize("data", [["--dataset", "digits"], ["--dataset", "folder:x"], []])
@pytest.mark.parametrize("command", [["--algo", "fedavg"], ["data"]])
def test_columns_are_for_parquet(command, data, capsys):
    assert main([*command, *data, "--columns", "image=img"]) == 2
    error = capsys.readouterr().err
    assert (
        error
        == "error: --columns is for --dataset parquet:PATH or csv:PATH or hf:OWNER/NAME alone; drop it\n"
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("img", "expected HOLDS=COLUMN, each once"), ("image=", "expected HOLDS=COLUMN, each once"),
        ("image=a,image=b", "each once"),
        ("picture=img", "expected image, label, client or ignore"),
        ("image=a,label=a", "names a column twice"),
        ("image=none", "has no column none"),
    ],
)  # fmt: skip
def test_bad_columns(text, part, tmp_path, capsys):
    words = [
        "--algo",
        "fedavg",
        "--dataset",
        f"parquet:{hub_file(tmp_path / 'a.parquet')}",
        "--columns",
        text,
    ]
    assert main(words) == 2
    err = capsys.readouterr().err
    assert part in err
    assert err.count("\n") == 1


# -- bad input ----------------------------------------------------------------------------------------


def _empty(root):
    root.mkdir()


def _file(root):
    root.write_text("no folder")


def _flat(root):
    save(datasets.load("digits").train.x[0], root / "a.png")


def _deep(root):
    save(datasets.load("digits").train.x[0], root / "a" / "b" / "c" / "d.png")


def _mixed(root):
    digits_folder(root, 20)
    save(datasets.load("digits").train.x[0], root / "loose" / "d.png")


def _one_class(root):
    for number in range(5):
        save(datasets.load("digits").train.x[number], root / "a" / f"{number}.png")


def _odd_halves(root):
    digits_folder(root, 20)
    (root / "test").rename(root / "exam")


def _new_class(root):
    digits_folder(root, 40)
    save(datasets.load("digits").train.x[0], root / "test" / "new" / "0.png")


def _alone(root):
    for number, name in enumerate(("a/0", "a/1", "a/2", "b/0")):
        save(datasets.load("digits").train.x[number], root / f"{name}.png")


def _damaged(root):
    digits_folder(root, 20)
    file = root / "train" / "0" / "0000.png"
    file.write_bytes(file.read_bytes()[:60])


def _no_image(root):
    digits_folder(root, 20)
    (root / "train" / "0" / "0000.png").write_text("hello")


def _sizes(root):
    digits_folder(root, 20)
    save(np.zeros((1, 9, 8), np.uint8), root / "train" / "0" / "0000.png")


def _deep_colours(root):
    digits_folder(root, 20)
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(root / "train" / "0" / "0000.png")


def _tiny_images(root):
    for label in "ab":
        for number in range(5):
            save(np.zeros((1, 3, 3), np.uint8), root / label / f"{label}{number}.png")


def _few_images(root):
    clients_folder(root, (30, 4, 3))


FOLDERS = {
    "missing": (lambda root: None, ["does not exist", "PATH/CLASS/"]),
    "a file": (_file, ["is a file", "PATH/CLASS/"]),
    "empty": (_empty, ["holds no images", ".png"]),
    "no class": (_flat, ["expected them in", "PATH/CLASS/"]),
    "too deep": (_deep, ["a/b/c", "expected them in"]),
    "two layouts": (_mixed, ["and others elsewhere", "expected all in"]),
    "one class": (_one_class, ["one class, 'a'", "two or more"]),
    "no test": (_odd_halves, ["train beside exam", "folder for training and one for testing"]),
    "an untrained class": (_new_class, ["class 'new'", "none for training"]),
    "an image alone": (_alone, ["class 'b'", "too few"]),
    "cut off": (_damaged, ["0000.png could not be read", "replace or remove"]),
    "no image": (_no_image, ["0000.png could not be read", "replace or remove"]),
    "sizes": (_sizes, ["different sizes", "PATH@"]),
    "16 bits": (_deep_colours, ["16 bits", "8 bits"]),
    "tiny": (_tiny_images, ["3x3", "4 a side"]),
    "poor clients": (_few_images, ["3 clients, of whom 1", "two or more such clients"]),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_bad_folders(case, capsys, tmp_path):
    make, parts = FOLDERS[case]
    make(tmp_path / "own")
    refused(capsys, tmp_path, f"folder:{tmp_path / 'own'}", parts)


def _columns(change):
    """Columns of 20 good rows of two clients, changed."""
    digits = datasets.load("digits").train
    images = [encoded(x) for x in digits.x[:20]]
    columns = {"image": images, "label": digits.y[:20].tolist(), "client": [0, 1] * 10}
    change(columns)
    return columns


TABLES = {
    "no label": (lambda c: c.pop("label"), ["columns image", "it has image, client", "--columns label="]),
    "numbers as labels": (lambda c: c.update(label=[0.5] * 20), ["label is double", "cast it", "astype"]),
    "truth as labels": (lambda c: c.update(label=[True, False] * 10), ["label is bool", "cast it"]),
    "one-hot labels": (lambda c: c.update(label=[[0, 1]] * 20), ["label is list", "one-hot", "argmax"]),
    "clients as numbers": (lambda c: c.update(client=[0.5] * 20), ["client is double", "cast it"]),
    "an empty label": (lambda c: c["label"].__setitem__(3, None), ["label in every row", "row 3 has none"]),
    "a blank label": (lambda c: c.update(label=["a", " "] * 10), ["label in every row", "row 1 has none"]),
    "a label that is none": (
        lambda c: c.update(label=[1.0, 2.0, float("nan")] + [1.0] * 17),
        ["label in every row", "row 2 has none"],
    ),
    "an empty client": (lambda c: c["client"].__setitem__(4, None), ["client in every row", "row 4"]),
    "features": (
        lambda c: [c.pop("image"), c.update(width=[0.5] * 20, height=[1.5] * 20)],
        ["the column width is constant", "'0.5' in every row", "--columns ignore=width"],
    ),
    "names of the Hub": (
        lambda c: [c.update(img=c.pop("image")), c.update(fine_label=c.pop("label"))],
        ["no column image and label", "--columns image=img,label=fine_label"],
    ),
    "another name of images": (lambda c: c.update(picture=c.pop("image")), ["--columns image=picture"]),
    "pixels": (lambda c: c.update(image=[[0, 1]] * 20), ["image is list", "not pixels", "PNG"]),
    "paths": (lambda c: c.update(image=["a.png"] * 20), ["image is string", "names of files", "folder:PATH"]),
    "paths in a struct": (
        lambda c: c.update(image=[{"bytes": c["image"][0], "path": ""}, {"bytes": None, "path": "a"}] * 10),
        ["row 1 of", "image has no bytes"],
    ),
    "no bytes": (lambda c: c.update(image=list(range(20))), ["image is int64"]),
    "no image": (lambda c: c["image"].__setitem__(5, b"x"), ["row 5 of", "could not be read"]),
    "an empty image": (lambda c: c["image"].__setitem__(6, None), ["image in every row", "row 6 has none"]),
    "no rows": (lambda c: [c.update({name: c[name][:0]}) for name in list(c)], ["no rows"]),
}


@pytest.mark.parametrize("case", TABLES)
def test_bad_tables(case, capsys, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    change, parts = TABLES[case]
    pq.write_table(pa.table(_columns(change)), tmp_path / "own.parquet")
    refused(capsys, tmp_path, f"parquet:{tmp_path / 'own.parquet'}", parts)
    with pytest.raises(UserError) as error:
        describe_own(f"parquet:{tmp_path / 'own.parquet'}")
    assert "fetch it again" not in str(error.value)


def test_bad_files(capsys, tmp_path):
    (tmp_path / "own.parquet").write_bytes(b"PAR1 and then nothing")
    refused(capsys, tmp_path, f"parquet:{tmp_path / 'own.parquet'}", ["complete parquet file"])
    refused(
        capsys, tmp_path, f"parquet:{tmp_path / 'none.parquet'}", ["is no file", "expected a parquet file"]
    )
    refused(capsys, tmp_path, f"parquet:{tmp_path}", ["a folder without train.parquet"])
    refused(capsys, tmp_path, "folder:", ["expected a path behind the colon"])
    for side in ("x", "2", "99999", "-8"):
        refused(capsys, tmp_path, f"folder:{tmp_path}/none@{side}", [f"'{side}'", "from 4 to 1024"])
    columns = _columns(lambda columns: None)
    for half in ("train", "test"):
        write_parquet(tmp_path / f"{half}.parquet", columns["image"], columns["label"], client=[0] * 20)
    refused(capsys, tmp_path, f"parquet:{tmp_path}", ["a column client", "one file"])


def test_other_laws_are_refused_for_clients(capsys, tmp_path):
    root = clients_folder(tmp_path / "x")
    words = ["data", "--dataset", f"folder:{root}", "--partition", "iid"]
    assert main(words) == 2
    assert "samples stay with their users" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["folder", "parquet"])
def test_a_name_that_is_too_long_is_one_line(kind, capsys):
    assert main(["--algo", "fedavg", "--dataset", f"{kind}:{'x' * 5000}"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_hub_without_its_package(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused(capsys, tmp_path, "hf:ylecun/mnist", ["needs the package huggingface-hub", "pip install"])
