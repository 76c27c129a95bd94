"""Own images: what is read follows their content, halves are known in any spelling, odd images are told."""

import os
import shutil

import numpy as np
import pytest
from own_images import clients_folder, digits_folder, save, write_parquet
from PIL import Image

from pfl_benchmark.cli import main
from pfl_benchmark.datasets import api as datasets
from pfl_benchmark.datasets.own import describe_own
from pfl_benchmark.datasets.partitioners import find_partitioner
from pfl_benchmark.errors import UserError


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def pixels(text):
    """All images of a dataset, training first."""
    info, _ = describe_own(text)
    if info.builtin is None:
        return info.reader.samples.x
    return np.concatenate([half.x for half in info.builtin()])


def two_classes(root, seed):
    """Forty images; those of other seeds have other pixels in files of equal names, sizes and times."""
    values = np.random.default_rng(seed).integers(0, 256, (40, 1, 8, 8), np.uint8)
    for number, x in enumerate(values):
        path = root / "ab"[number % 2] / f"{number:02}.bmp"  # not compressed
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x[0]).save(path)
        os.utime(path, (1, 1))
    return root


def folder(root, seed):
    return f"folder:{two_classes(root / 'own', seed)}"


def parquet(root, seed):
    values = np.random.default_rng(seed).integers(0, 256, (40, 1, 8, 8), np.uint8)
    root.mkdir(exist_ok=True, parents=True)
    images = [np.ascontiguousarray(x) for x in values]
    content = []
    for x in images:
        Image.fromarray(x[0]).save(root / "one.bmp")
        content.append((root / "one.bmp").read_bytes())
    path = write_parquet(root / "own.parquet", content, [number % 2 for number in range(40)])
    os.utime(path, (1, 1))
    return f"parquet:{path}"


@pytest.mark.parametrize("make", [folder, parquet])
def test_equal_names_sizes_and_times_with_other_pixels(make, tmp_path):
    one, other = make(tmp_path / "x", 1), make(tmp_path / "y", 2)
    assert not np.array_equal(pixels(one), pixels(other))
    replaced = make(tmp_path / "x", 3)
    assert replaced == one
    assert not np.array_equal(pixels(one), pixels(other))
    assert describe_own(one)[0].name != describe_own(other)[0].name


def test_images_added_between_two_readings_are_seen(tmp_path):
    text = folder(tmp_path, 1)
    before = len(pixels(text))
    shutil.copy(tmp_path / "own" / "a" / "00.bmp", tmp_path / "own" / "a" / "99.bmp")
    assert len(pixels(text)) == before + 1


HALVES = [
    ("train", "test"), ("Train", "Testing"), ("TRAIN", "TEST"), ("training", "val"),
    ("Training", "Validation"), ("seg_train", "seg_test"), ("train_images", "test_images"),
    ("trainSet", "evalSet"), ("train-19", "dev"),
]  # fmt: skip


@pytest.mark.parametrize("names", HALVES, ids="-".join)
def test_halves_in_any_spelling_are_no_clients(names, tmp_path):
    plain, spelled = digits_folder(tmp_path / "plain", 200), tmp_path / "spelled"
    for old, new in zip(("train", "test"), names, strict=True):
        shutil.copytree(plain / old, spelled / new)
    expected, found = (describe_own(f"folder:{root}") for root in (plain, spelled))
    assert found[1] == expected[1]
    assert found[0].sizes == expected[0].sizes
    assert f"{names[0]} and {names[1]}" in found[0].origin


@pytest.mark.parametrize(
    "names",
    [("val", "test"), ("train", "val", "test"), ("train", "training"), ("train", "alice"), ("Test", "bob")],
)
def test_halves_that_are_none_are_refused(names, tmp_path):
    plain = digits_folder(tmp_path / "plain", 100) / "train"
    for name in names:
        shutil.copytree(plain, tmp_path / "own" / name)
    with pytest.raises(UserError, match="expected one folder for training and one for testing") as error:
        describe_own(f"folder:{tmp_path / 'own'}")
    assert all(name in str(error.value) for name in names)


@pytest.mark.parametrize(
    "names", [("alice", "bob"), ("trainer", "tester"), ("contest", "latest"), ("s1", "s2")]
)
def test_clients_stay_clients(names, tmp_path):
    clients_folder(tmp_path / "plain", (30, 30))
    for old, new in zip("ab", names, strict=True):
        shutil.copytree(tmp_path / "plain" / old, tmp_path / "own" / new)
    info, values = describe_own(f"folder:{tmp_path / 'own'}")
    assert values["partition"] == "natural"
    assert f"2 clients ({', '.join(sorted(names))})" in info.origin


def test_few_test_images_are_told(tmp_path):
    digits = datasets.load("digits").train
    for number in range(180):
        save(digits.x[number], tmp_path / "own" / str(number % 3) / f"{number}.png")
    told = describe_own(f"folder:{tmp_path / 'own'}")[0].origin
    assert "few test images a client (12: one is 8.33 % of its accuracy)" in told
    assert "--clients" in told
    assert "few test images" not in describe_own(f"folder:{digits_folder(tmp_path / 'all')}")[0].origin


def test_a_class_without_test_images_is_allowed_and_told(tmp_path):
    root = digits_folder(tmp_path / "own")
    shutil.rmtree(root / "test" / "7")
    info, _values = describe_own(f"folder:{root}")
    assert "no test images of class '7'" in info.origin
    train, test = info.builtin()
    for name, options in (
        ("dirichlet", {"dirichlet": 0.5}),
        ("distinct", {"classes_per_client": 2}),
        ("iid", {}),
    ):
        law = find_partitioner(name)(10, 40, 10, **options)
        split = law.divide(train.y, test.y, info.classes, np.random.default_rng(0))
        assert any((train.y[part] == 7).any() for part in split.train)
        assert [len(part) for part in split.test] == [10] * 10
    only = find_partitioner("distinct")(10, 40, 10, classes_per_client=1)
    with pytest.raises(UserError, match="no test samples, and on no others"):
        only.divide(train.y, test.y, info.classes, np.random.default_rng(0))


# -- images that lose their content --------------------------------------------------------------------


def drawn(root, make):
    """Twenty images of two classes; `make` returns one for a picture of 8 × 8 grey levels."""
    digits = datasets.load("digits").train
    for number in range(20):
        path = root / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        make(digits.x[number, 0]).save(path)
    return f"folder:{root}"


def in_alpha(picture):
    black = np.zeros((8, 8, 3), np.uint8)
    return Image.fromarray(np.dstack([black, picture]))


def grey_in_alpha(picture):
    return Image.fromarray(np.dstack([np.zeros_like(picture), picture]))


@pytest.mark.parametrize("make", [in_alpha, grey_in_alpha])
def test_pictures_in_the_alpha_channel_are_shown_on_white(make, tmp_path):
    plain = pixels(drawn(tmp_path / "plain", lambda picture: Image.fromarray(255 - picture)))
    text = drawn(tmp_path / "alpha", make)
    assert "20 images have transparency, shown on white" in describe_own(text)[0].origin
    assert np.abs(pixels(text)[:, :1].astype(int) - plain).max() <= 1


@pytest.mark.parametrize("turn", range(2, 9))
@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_turned_images_are_turned_back(kind, turn, tmp_path):
    from PIL import ImageOps

    exif = Image.Exif()
    exif[274] = turn
    wide = Image.fromarray(np.arange(8 * 12, dtype=np.uint8).reshape(8, 12) * 2)
    for number in range(20):
        path = tmp_path / "own" / "ab"[number % 2] / f"{number}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        wide.save(path, exif=exif)
    text = f"folder:{tmp_path / 'own'}"
    assert "20 were turned" in describe_own(text)[0].origin
    assert "all images are equal" in describe_own(text)[0].origin
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    assert np.array_equal(pixels(text)[0, 0], expected)


def test_ordinary_images_have_nothing_told(tmp_path):
    told = describe_own(drawn(tmp_path, lambda picture: Image.fromarray(picture)))[0].origin
    assert not any(word in told for word in ("transparen", "turned", "equal"))


# -- files that are no images ----------------------------------------------------------------------------


def deep_png(path):
    """RGB of 16 bits, which Pillow reads as 8."""
    import struct
    import zlib

    def chunk(name, content):
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    rows = b"".join(b"\0" + bytes(8 * 3 * 2) for _ in range(8))
    header = struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)


def deep_ppm(path):
    path.with_suffix(".ppm").write_bytes(b"P6\n# a comment\n8 8\n65535\n" + bytes(8 * 8 * 3 * 2))


def huge(path):
    Image.new("1", (13_000, 13_000)).save(path)


ODD = {
    "dangling link": (lambda path: path.symlink_to("nowhere.png"), "is a link to nothing"),
    "link to itself": (lambda path: path.symlink_to(path.name), "is a link to nothing"),
    "circle": (
        lambda path: path.with_suffix("").symlink_to(path.parent),
        "is a link to a folder that it is in",
    ),
    "wider circle": (lambda path: path.with_suffix("").symlink_to(path.parents[1]), "folder that it is in"),
    "fifo": (os.mkfifo, "is no regular file"),
    "not UTF-8": (
        lambda path: os.symlink(path.parent / "00.bmp", os.fsencode(path) + b"\xff.png"),
        "not UTF-8",
    ),
    "16 bits of colour": (deep_png, "16 bits a channel"),
    "16 bits of a PPM": (deep_ppm, "16 bits a channel"),
    "169 megapixels": (huge, "megapixels"),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_files_are_refused_in_a_line(kind, tmp_path):
    make, message = ODD[kind]
    make(two_classes(tmp_path / "own", 0) / "a" / "odd.png")
    with pytest.raises(UserError, match=message) as error:
        describe_own(f"folder:{tmp_path / 'own'}")
    str(error.value).encode()  # can be printed
    assert "\n" not in str(error.value)


def test_images_are_read_once_more_after_a_change_while_reading(tmp_path):
    """A cache is not written for files that changed between their hash and their decoding."""
    from pfl_benchmark.datasets import cache

    file = tmp_path / "source"
    file.write_bytes(b"one")

    def decode():
        file.write_bytes(b"two")
        return {"x": np.zeros(1)}

    cache.cached("some", [file], tmp_path, decode, ("x",))
    assert not list(tmp_path.rglob("*.npz"))


@pytest.mark.parametrize(
    ("sizes", "side"),
    [
        ([(20, 30), (40, 50), (60, 33)], 40),
        ([(9, 9), (10, 10)], 8),
        ([(5, 4), (4, 4)], 8),
        ([(1300, 2000)] * 3 + [(9, 9)], 1024),
    ],
)
def test_a_side_is_proposed_for_images_of_different_sizes(sizes, side, tmp_path, capsys):
    """The median, as a multiple of eight; with it they are read."""
    for number, (width, height) in enumerate(sizes * 4):
        path = tmp_path / "x" / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (width, height), number).save(path)
    assert main(["data", "--dataset", f"folder:{tmp_path / 'x'}"]) == 2
    error = capsys.readouterr().err
    assert error.endswith(f"PATH@{side}\n")
    assert error.count("\n") == 1
    if side < 100:
        assert describe_own(f"folder:{tmp_path / 'x'}@{side}")[0].shape == (1, side, side)
