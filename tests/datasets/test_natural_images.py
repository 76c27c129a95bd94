"""Images with writers or domains: FEMNIST and PACS, from tiny files in the forms that people have."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from own_images import answer, restored  # noqa: F401
from PIL import Image

from pfl_benchmark.cli import main
from pfl_benchmark.datasets.api import DATASETS, PARTITIONERS, load
from pfl_benchmark.datasets.people.pacs import DOMAINS
from pfl_benchmark.errors import UserError

RNG = np.random.default_rng(0)
WRITERS = ("f0000_14", "f0001_41", "f0002_09")
X = RNG.integers(0, 256, (30, 28, 28), np.uint8)
Y = np.arange(30) % 7
USERS = np.arange(30) // 10
PICTURES = RNG.integers(0, 256, (56, 48, 40, 3), np.uint8)
CLASSES = DATASETS["pacs"].class_names


def encoded(pixels):
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def leaf(root, folder="femnist/data", halves=True):
    for half, rows in {"train": slice(0, 8), "test": slice(8, 10)}.items():
        data = {}
        for user, name in enumerate(WRITERS):
            own = np.flatnonzero(user == USERS)[rows if halves else slice(0, 10)]
            data[name] = {"x": (X[own].reshape(len(own), -1) / 255).tolist(), "y": Y[own].tolist()}
        content = {
            "users": list(data),
            "num_samples": [len(d["y"]) for d in data.values()],
            "user_data": data,
        }
        place = root / folder / (half if halves else "all_data")
        place.mkdir(parents=True, exist_ok=True)
        (place / "all_data_0_niid_0_keep_0.json").write_text(json.dumps(content))


def hub(root):
    (root / "femnist" / "data").mkdir(parents=True)
    order = RNG.permutation(30)
    columns = {
        "image": [{"bytes": encoded(X[row]), "path": None} for row in order],
        "writer_id": [WRITERS[USERS[row]] for row in order],
        "hsf_id": [0] * 30,
        "character": Y[order],
    }
    pq.write_table(pa.table(columns), root / "femnist" / "data" / "train-00000-of-00001.parquet")


WRITTEN = {
    "leaf": leaf,
    "leaf-plain": lambda root: leaf(root, "femnist"),
    "leaf-all": lambda root: leaf(root, halves=False),
    "hub": hub,
}


@pytest.mark.parametrize("form", WRITTEN)
def test_femnist_in_every_form(form, tmp_path):
    WRITTEN[form](tmp_path)
    for _ in range(2):  # from the files, and from the cache
        dataset = load("femnist", tmp_path)
        assert dataset.users.tolist() == USERS.tolist()
        assert sorted(x.tobytes() for x in dataset.train.x) == sorted(x.tobytes() for x in X)
        for x, y, user in zip(dataset.train.x, dataset.train.y, dataset.users, strict=True):
            row = next(row for row in range(30) if (X[row] == x[0]).all())
            assert (Y[row], USERS[row]) == (y, user)
    if form in ("leaf", "leaf-plain"):
        assert dataset.held_out.tolist() == [number % 10 >= 8 for number in range(30)]
    else:
        assert dataset.held_out is None
    assert "partial: 30 of" in dataset.source


def test_femnist_is_split_by_writer_and_as_given(tmp_path, capsys):
    leaf(tmp_path)
    words = ["data", "--dataset", "femnist", "--data-dir", tmp_path, "--clients", "3", "--json"]
    words += ["--out", tmp_path / "split.png"]
    natural = answer(capsys, *words, "--least-test", "1")
    assert [row["train"] for row in natural["clients"]] == [8, 8, 8]
    given = answer(capsys, *words, "--partition", "given")
    assert [row["test"] for row in given["clients"]] == [2, 2, 2]
    dataset = load("femnist", tmp_path)
    split = PARTITIONERS["given"](3, 1, 1).split(dataset, np.random.default_rng(0))
    assert split.test[1].tolist() == [18, 19]


def broken(change):
    def write(root):
        leaf(root)
        path = next((root / "femnist/data/train").glob("*.json"))
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return write


def in_x(value):
    return broken(lambda content: content["user_data"][WRITERS[0]]["x"].__setitem__(0, value))


def no_json(root):
    leaf(root)
    next((root / "femnist/data/train").glob("*.json")).write_text("{")


ODD = {
    "no JSON": (no_json, "LEAF's JSON"),
    "other JSON": (broken(lambda c: c.pop("users")), "user_data, but it has num_samples"),
    "a user without data": (broken(lambda c: c["user_data"].pop(WRITERS[0])), f"of user '{WRITERS[0]}'"),
    "by users": (broken(lambda c: c["users"].pop()), "-t sample"),
    "pixels": (in_x([7] * 784), "grey levels from 0 to 1"),
    "a length": (in_x([0.5]), "28x28"),
    "labels": (broken(lambda c: c["user_data"][WRITERS[0]]["y"].__setitem__(0, 62)), "labels beyond 0..61"),
    "nothing": (lambda root: None, "'femnist' was not found"),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_files_of_femnist(case, tmp_path):
    write, part = ODD[case]
    write(tmp_path)
    with pytest.raises(UserError) as error:
        load("femnist", tmp_path)
    assert part in str(error.value)
    assert "\n" not in str(error.value)


# PACS


def of_pictures():
    """Two pictures of each class and domain: pixels, label, domain."""
    return [(PICTURES[n], n // 2 % 7, n // 14) for n in range(56)]


def folders(home):
    def write(root):
        for number, (pixels, label, domain) in enumerate(of_pictures()):
            path = root / home / DOMAINS[domain] / CLASSES[label] / f"pic_{number:03}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(pixels))

    return write


def tables(names):
    def write(root):
        (root / "pacs").mkdir()
        rows = of_pictures()
        columns = {
            "image": [{"bytes": encoded(pixels), "path": None} for pixels, _, _ in rows],
            "label": [label for _, label, _ in rows],
            "domain": [DOMAINS[domain] if names else domain for _, _, domain in rows],
        }
        pq.write_table(pa.table(columns), root / "pacs" / "train-00000-of-00001.parquet")

    return write


FORMS = {
    "domainbed": folders("PACS"),
    "kfold": folders("pacs/kfold"),
    "numbers": tables(False),
    "names": tables(True),
}


@pytest.mark.parametrize("form", FORMS)
def test_pacs_in_every_form(form, tmp_path):
    FORMS[form](tmp_path)
    dataset = load("pacs", tmp_path)
    assert dataset.train.x.shape == (56, 3, 32, 32)
    assert dataset.users.tolist() == [domain for _, _, domain in of_pictures()]
    assert dataset.train.y.tolist() == [label for _, label, _ in of_pictures()]
    image = Image.fromarray(PICTURES[3]).resize((32, 32), Image.Resampling.BILINEAR)
    assert (dataset.train.x[3] == np.asarray(image).transpose(2, 0, 1)).all()


def test_a_picture_that_moves_to_another_class_is_read_anew(tmp_path):
    folders("pacs")(tmp_path)
    before = load("pacs", tmp_path)
    (moved,) = (tmp_path / "pacs" / DOMAINS[0] / CLASSES[0]).glob("*001.png")
    moved.rename(moved.parent.parent / CLASSES[1] / moved.name)
    after = load("pacs", tmp_path)
    assert np.bincount(before.train.y)[:2].tolist() == [8, 8]
    assert np.bincount(after.train.y)[:2].tolist() == [7, 9]
    assert after.checksum != before.checksum


@pytest.mark.parametrize(("side", "network"), [(16, "cnn-cifar10"), (8, "cnn-digits"), (48, "cnn-cifar10")])
def test_pacs_of_another_side(side, network, tmp_path, capsys):
    tables(True)(tmp_path)
    words = ["data", "--data-dir", tmp_path, "--clients", "4", "--json", "--out", tmp_path / "split.png"]
    found = [answer(capsys, *words, "--dataset", name) for name in ("pacs", f"pacs@{side}")]
    assert (found[1]["dataset"], found[1]["shape"]) == (f"pacs-{side}", [3, side, side])
    assert found[1]["network"] == network
    assert found[1]["checksum"] == found[0]["checksum"]


@pytest.mark.parametrize(
    ("clients", "domains"), [(4, [0, 1, 2, 3]), (8, [0, 0, 1, 1, 2, 2, 3, 3]), (6, [0, 0, 1, 1, 2, 3])]
)
def test_a_client_has_pictures_of_one_domain(clients, domains, tmp_path):
    tables(True)(tmp_path)
    dataset = load("pacs", tmp_path)
    partitioner = PARTITIONERS["domains"](clients, 1, 1, test_share=0.2, least_test=1)
    split = partitioner.split(dataset, np.random.default_rng(1))
    for train, test, domain in zip(split.train, split.test, domains, strict=True):
        assert {*dataset.users[train]} == {*dataset.users[test]} == {domain}
    rows = np.concatenate([*split.train, *split.test])
    assert sorted(rows) == list(range(56))
    assert partitioner.tell(split.facts).startswith("4 domains, ")


def test_fewer_clients_than_domains(tmp_path):
    tables(True)(tmp_path)
    dataset = load("pacs", tmp_path)
    partitioner = PARTITIONERS["domains"](3, 1, 1, test_share=0.2, least_test=1)
    split = partitioner.split(dataset, np.random.default_rng(0))
    assert [{*dataset.users[rows]} for rows in split.train] == [{0}, {1}, {2}]


def test_domains_have_no_pool_of_users(tmp_path, capsys):
    words = [
        "data",
        "--setting",
        "synth-tweets",
        "--partition",
        "domains",
        "--clients",
        "30",
        "--least-test",
        "1",
    ]
    found = answer(capsys, *words, "--test-share", "0.2", "--json", "--out", tmp_path / "x.png")
    assert found["users"]["domains"] == 24
    assert main([*words, "--user-pool", "20"]) == 2
    assert "--user-pool has no effect under --partition domains" in capsys.readouterr().err


def test_more_clients_than_pictures(tmp_path):
    tables(True)(tmp_path)
    with pytest.raises(UserError, match=r"0 of the 60 clients would have .* give fewer --clients"):
        PARTITIONERS["domains"](60, 1, 1, test_share=0.2, least_test=1).split(
            load("pacs", tmp_path), np.random.default_rng(0)
        )


def damaged(change):
    def write(root):
        folders("pacs")(root)
        change(root)

    return write


BAD = {
    "nothing": (lambda root: None, "'pacs' was not found"),
    "a domain": (
        damaged(lambda root: (root / "pacs/sketch").rename(root / "s")),
        "no images of the domain sketch",
    ),
    "a picture": (
        damaged(lambda root: next((root / "pacs/photo/dog").glob("*")).write_bytes(b"x")),
        "no image in a format",
    ),
    "columns": (
        damaged(lambda root: pq.write_table(pa.table({"a": [1]}), root / "pacs/a.parquet")),
        "image, label, domain of PACS",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_odd_files_of_pacs(case, tmp_path):
    write, part = BAD[case]
    write(tmp_path)
    with pytest.raises(UserError) as error:
        load("pacs", tmp_path)
    assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["pacs@0", "pacs@x", "pacs@99999", "digits@16"])
def test_bad_sides(text, capsys):

    assert main(["data", "--dataset", text]) == 2
    assert capsys.readouterr().err.count("\n") == 1
