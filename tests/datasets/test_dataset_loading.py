"""Loading from every layout, the cache, the download, and what users are told when something is wrong."""

import dataclasses
import gzip
import inspect
import io
import os
import pickle
import re
import shutil
import sys
import types
import urllib.error
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import pfl_benchmark.datasets.download
import pfl_benchmark.datasets.loading
from pfl_benchmark.datasets.api import DATASETS, DatasetInfo, Samples, load
from pfl_benchmark.datasets.layouts import ParquetFiles
from pfl_benchmark.datasets.vision import import_torchvision
from pfl_benchmark.errors import UserError

N_TRAIN, N_TEST = 130, 104


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    """No test may see or touch the user's own data and cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))
    monkeypatch.delenv("PFL_DATA_DIR", raising=False)
    return tmp_path / "cache-home" / "pfl-benchmark"


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def no_download(monkeypatch):
    def refuse(*_):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(pfl_benchmark.datasets.loading, "fetch", refuse)


def made(name, seed=0):
    """Random images with the shape and the labels of a dataset: ((x, y) of training, (x, y) of test)."""
    rng, info = np.random.default_rng(seed), DATASETS[name]
    return tuple(
        (rng.integers(0, 256, (n, *info.shape), dtype=np.uint8), np.arange(n, dtype=np.int64) % info.classes)
        for n in (N_TRAIN, N_TEST)
    )


# Writers: each puts `halves`, pairs (x uint8 [N, C, H, W], y as in the files), into a data folder.


def png(image):
    buffer = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0).squeeze()).save(buffer, "PNG")
    return buffer.getvalue()


def write_parquet_file(path, x, y, image="img", label="label"):
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": png(one), "path": None} for one in x]
    pq.write_table(pa.table({image: images, label: y, "other": y}), path)


def parquet(folder, **columns):
    def write(root, halves):
        for half, (x, y) in zip(("train", "test"), halves, strict=True):
            write_parquet_file(root / folder / f"{half}.parquet", x, y, **columns)

    return write


def parquet_shards(folder):
    def write(root, halves):
        for half, (x, y) in zip(("train", "test"), halves, strict=True):
            for i, part in enumerate(np.array_split(np.arange(len(y)), 3)):
                write_parquet_file(root / folder / f"{half}-{i:05d}-of-00003.parquet", x[part], y[part])

    return write


def cifar10_pickles(root, halves):
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    (x, y), test = halves
    fifths = np.array_split(np.arange(len(y)), 5)
    batches = {f"data_batch_{i + 1}": (x[part], y[part]) for i, part in enumerate(fifths)}
    batches["test_batch"] = test
    for name, (images, labels) in batches.items():
        content = {"data": images.reshape(len(images), -1), "labels": labels.tolist(), "batch_label": name}
        (folder / name).write_bytes(pickle.dumps(content, protocol=4))


def cifar100_pickles(root, halves):
    folder = root / "cifar-100-python"
    folder.mkdir()
    for name, (x, y) in zip(("train", "test"), halves, strict=True):
        content = {"data": x.reshape(len(x), -1), "fine_labels": y.tolist(), "coarse_labels": [0] * len(y)}
        (folder / name).write_bytes(pickle.dumps(content, protocol=4))


def idx_bytes(array):
    sizes = np.array(array.shape, dtype=">i4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def idx(folder, prefixes, transposed=False, gz=False):
    def write(root, halves):
        (root / folder).mkdir(parents=True)
        for prefix, (x, y) in zip(prefixes, halves, strict=True):
            images = x[:, 0].transpose(0, 2, 1) if transposed else x[:, 0]
            for kind, array in (("images-idx3", images), ("labels-idx1", y)):
                path = root / folder / f"{prefix}-{kind}-ubyte{'.gz' if gz else ''}"
                path.write_bytes(gzip.compress(idx_bytes(array)) if gz else idx_bytes(array))

    return write


def mat(folder):
    """SVHN's files, in which the digit 0 is a 10."""

    def write(root, halves):
        from scipy.io import savemat

        (root / folder).mkdir(parents=True, exist_ok=True)
        for half, (x, y) in zip(("train", "test"), halves, strict=True):
            content = {"X": x.transpose(2, 3, 1, 0), "y": np.where(y == 0, 10, y)[:, None].astype(np.uint8)}
            savemat(root / folder / f"{half}_32x32.mat", content)

    return write


def tiny(folder, sorted_by_class):
    """Tiny ImageNet's folders, with lossless files that are called like the official ones."""

    def write(root, halves):
        classes, home = DATASETS["tiny-imagenet"].class_names, root / folder
        (train_x, train_y), (test_x, test_y) = halves
        for x, y in zip(train_x, train_y, strict=True):
            path = home / "train" / classes[y] / "images" / f"{classes[y]}_0.JPEG"
            path.parent.mkdir(parents=True)
            path.write_bytes(png(x))
        lines = []
        for number, (x, y) in enumerate(zip(test_x, test_y, strict=True)):
            within = f"{classes[y]}/images" if sorted_by_class else "images"
            path = home / "val" / within / f"val_{number:04}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(x))
            lines.append(f"{path.name}\t{classes[y]}\t0\t0\t62\t62\n")
        if not sorted_by_class:
            (home / "val" / "val_annotations.txt").write_text("".join(lines))
        (home / "test" / "images").mkdir(parents=True)

    return write


LETTERS = ("emnist-letters-train", "emnist-letters-test")
LAYOUTS = {  # dataset, writer, label of class 0 in the files
    "cifar10-parquet": ("cifar10", parquet("cifar10"), 0),
    "cifar10-shards": ("cifar10", parquet_shards("cifar10"), 0),
    "cifar10-pickles": ("cifar10", cifar10_pickles, 0),
    "cifar100-parquet": ("cifar100", parquet("cifar100", label="fine_label"), 0),
    "cifar100-pickles": ("cifar100", cifar100_pickles, 0),
    "emnist-parquet": ("emnist", parquet("emnist", image="image"), 1),
    "emnist-parquet-zero-based": ("emnist", parquet("emnist", image="image"), 0),
    "emnist-idx": ("emnist", idx("EMNIST/raw", LETTERS, transposed=True), 1),
    "emnist-idx-gz": ("emnist", idx("EMNIST/raw", LETTERS, transposed=True, gz=True), 1),
    "fmnist-parquet": ("fmnist", parquet("fmnist", image="image"), 0),
    "fmnist-idx": ("fmnist", idx("FashionMNIST/raw", ("train", "t10k")), 0),
    "mnist-parquet": ("mnist", parquet("mnist", image="image"), 0),
    "mnist-idx": ("mnist", idx("MNIST/raw", ("train", "t10k")), 0),
    "mnist-idx-gz": ("mnist", idx("mnist", ("train", "t10k"), gz=True), 0),
    "svhn-parquet": ("svhn", parquet("svhn", image="image"), 0),
    "svhn-mat": ("svhn", mat("svhn"), 0),
    "svhn-mat-there": ("svhn", mat("."), 0),
    "tiny-imagenet": ("tiny-imagenet", tiny("tiny-imagenet-200", False), 0),
    "tiny-imagenet-sorted": ("tiny-imagenet", tiny("tiny-imagenet", True), 0),
    "fmnist-idx-gz": ("fmnist", idx("FashionMNIST/raw", ("train", "t10k"), gz=True), 0),
}


def assert_holds(dataset, halves):
    for samples, (x, y) in zip((dataset.train, dataset.test), halves, strict=True):
        assert samples.x.dtype == np.uint8
        assert samples.y.dtype == np.int64
        np.testing.assert_array_equal(samples.x, x)
        np.testing.assert_array_equal(samples.y, y)


@pytest.fixture(params=list(LAYOUTS))
def layout(request, root):
    """A dataset on disk in one of the layouts: its name, its data folder and what it should hold."""
    name, write, first_label = LAYOUTS[request.param]
    halves = made(name)
    write(root, tuple((x, y + first_label) for x, y in halves))
    return name, root, halves


# Layouts and the order of search


def test_every_layout(layout):
    name, root, halves = layout
    dataset = load(name, root)
    assert_holds(dataset, halves)
    assert str(root) in dataset.source
    assert f"partial: {N_TRAIN} of " in dataset.source
    assert_holds(load(name, root), halves)  # from the cache


def test_parquet_comes_before_the_pickles(root):
    cifar10_pickles(root, made("cifar10", seed=1))
    parquet("cifar10")(root, made("cifar10", seed=2))
    assert_holds(load("cifar10", root), made("cifar10", seed=2))


def test_environment_names_the_data_folder(root, monkeypatch):
    parquet("cifar10")(root, made("cifar10"))
    monkeypatch.setenv("PFL_DATA_DIR", str(root))
    assert str(root) in load("cifar10").source


def test_without_a_data_folder_the_user_cache_is_used(cache_home):
    parquet("cifar10")(cache_home / "data", made("cifar10"))
    assert str(cache_home / "data") in load("cifar10").source


def test_the_letters_sample_is_not_taken_for_emnist(root, no_download):
    parquet("emnist_letters_sample", image="image")(root, made("emnist"))
    with pytest.raises(UserError, match="'emnist' was not found"):
        load("emnist", root)


def test_digits_need_no_files(tmp_path):
    assert len(load("digits", tmp_path / "missing", download=False).train) == 1347


def own(x, y):
    """A dataset of a researcher's own, two classes of 4×4 images, which `builtin` makes."""

    def read():
        return Samples(x, y), Samples(x, y)

    return DatasetInfo("own", "Own", ("a", "b"), (1, 4, 4), (8, 8), (0.5,), (0.5,), builtin=read)


IMAGES = np.zeros((8, 1, 4, 4), np.uint8)
LABELS = np.arange(8, dtype=np.int64) % 2


@pytest.mark.parametrize(
    ("x", "y", "problem"),
    [
        (IMAGES / 255, LABELS, "float64 images and int64 labels instead of uint8 and int64"),
        (IMAGES, LABELS.astype(np.int32), "uint8 images and int32 labels instead of"),
        (IMAGES.transpose(0, 2, 3, 1), LABELS, r"shape \(4, 4, 1\) instead of \(1, 4, 4\)"),
        (IMAGES, LABELS + 1, "labels 1..2 instead of 0..1"),
        (IMAGES[:6], LABELS, r"images \[6, 1, 4, 4\] and labels \[8\] instead of one label an image"),
        (IMAGES, LABELS[:, None], r"labels \[8, 1\] instead of one label an image"),
        (IMAGES[:0], LABELS[:0], "no images"),
    ],
)
def test_what_a_dataset_makes_itself_is_checked(x, y, problem, monkeypatch):
    monkeypatch.setattr(pfl_benchmark.datasets.loading, "DATASETS", {"own": own(x, y)})
    with pytest.raises(UserError, match=f"training part of 'own' has .*{problem}"):
        load("own")


HALF = Samples(IMAGES, LABELS)


@pytest.mark.parametrize(
    ("made", "changes", "problem"),
    [
        (None, {}, "does not return two `Samples`"),
        (HALF, {}, "does not return two `Samples`"),
        ((HALF, LABELS), {}, "does not return two `Samples`"),
        ((HALF, Samples(IMAGES.tolist(), LABELS)), {}, "does not return two `Samples` of NumPy arrays"),
        ((HALF, HALF), {"mean": (0.5, 0.5, 0.5)}, "expected a number for each of its 1 channels"),
        ((HALF, HALF), {"std": (0.0,)}, "std above 0"),
    ],
)
def test_what_its_author_has_mistaken_is_told(made, changes, problem, monkeypatch):
    info = dataclasses.replace(own(IMAGES, LABELS), builtin=lambda: made, **changes)
    monkeypatch.setattr(pfl_benchmark.datasets.loading, "DATASETS", {"own": info})
    with pytest.raises(UserError, match=f"'own' .*{problem}"):
        load("own")


def test_a_dataset_without_samples_and_files_is_told(monkeypatch):
    info = dataclasses.replace(own(IMAGES, LABELS), builtin=None)
    monkeypatch.setattr(pfl_benchmark.datasets.loading, "DATASETS", {"own": info})
    with pytest.raises(UserError, match="'own' has neither a `builtin` nor layouts"):
        load("own")


def test_a_file_that_such_a_dataset_misses_is_told(monkeypatch):
    def read():
        np.load("nowhere.npz")

    missing = dataclasses.replace(own(IMAGES, LABELS), builtin=read)
    monkeypatch.setattr(pfl_benchmark.datasets.loading, "DATASETS", {"own": missing})
    with pytest.raises(UserError, match=r"dataset 'own' cannot be read: .*nowhere\.npz"):
        load("own")


def test_the_checksum_is_of_samples_labels_and_vectors():
    def dataset(**changes):
        part = Samples(changes.get("x", IMAGES), changes.get("y", LABELS))
        return own(IMAGES, LABELS).holding(part, part, "here", changes.get("vectors"))

    plain = dataset().checksum
    assert plain == dataset(x=IMAGES.copy(order="F"), y=LABELS.astype(">i8")).checksum
    brighter, swapped = IMAGES + np.uint8(1), LABELS[::-1]
    others = [dataset(x=brighter), dataset(y=swapped), dataset(vectors=np.zeros((3, 2), np.float32))]
    assert len({plain, *(other.checksum for other in others)}) == 4


# The cache


def caches(folder):
    return sorted(folder.rglob("*.npz"))


def test_cache_lies_beside_the_source(root, cache_home, monkeypatch):
    parquet("cifar10")(root, made("cifar10"))
    load("cifar10", root)
    assert [path.parent for path in caches(root)] == [root / "cifar10" / ".pfl-cache"]
    assert not cache_home.exists()
    monkeypatch.setattr(ParquetFiles, "read", None)  # not called again
    assert_holds(load("cifar10", root), made("cifar10"))


def test_changed_source_is_read_again(root):
    parquet("cifar10")(root, made("cifar10", seed=1))
    load("cifar10", root)
    parquet("cifar10")(root, made("cifar10", seed=2))
    for path in (root / "cifar10").glob("*.parquet"):
        os.utime(path, (1, 1))
    assert_holds(load("cifar10", root), made("cifar10", seed=2))


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "foreign"])
def test_damaged_cache_is_rebuilt(root, damage):
    parquet("cifar10")(root, made("cifar10"))
    load("cifar10", root)
    (path,) = caches(root)
    content = path.read_bytes()
    middle = len(content) // 2
    broken = {
        "truncated": content[:middle],
        "flipped": content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :],
        "empty": b"",
        "foreign": b"not a zip file",
    }
    path.write_bytes(broken[damage])
    assert_holds(load("cifar10", root), made("cifar10"))
    assert path.read_bytes()[:2] == b"PK"
    assert path.stat().st_size == len(content)


def test_read_only_source_is_cached_for_the_user(root, cache_home):
    parquet("cifar10")(root, made("cifar10"))
    (root / "cifar10").chmod(0o555)
    try:
        load("cifar10", root)
    finally:
        (root / "cifar10").chmod(0o755)
    assert not caches(root)
    assert [path.parent for path in caches(cache_home)] == [cache_home / "arrays"]


def test_no_place_for_a_cache(root, cache_home):
    parquet("cifar10")(root, made("cifar10"))
    (root / "cifar10" / ".pfl-cache").write_text("a file, not a folder")
    cache_home.parent.write_text("so is this")
    assert_holds(load("cifar10", root), made("cifar10"))


def test_full_disk_leaves_no_part_of_a_cache(root, cache_home, monkeypatch):
    def fail(*_, **__):
        raise OSError("No space left on device")

    parquet("cifar10")(root, made("cifar10"))
    monkeypatch.setattr(np, "savez", fail)
    assert_holds(load("cifar10", root), made("cifar10"))
    assert not list(root.rglob("*.tmp"))
    assert not list(cache_home.rglob("*.tmp"))


# Files that are not what they should be


def error_of(*args, **kwargs):
    with pytest.raises(UserError) as error:
        load(*args, **kwargs)
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 1100
    return text


def test_unknown_name():
    text = error_of("cifar11")
    assert text.startswith(
        "unknown dataset 'cifar11' (did you mean 'cifar10'?): choose from cifar10, cifar100,"
    )


def test_truncated_files(layout):
    name, root, _ = layout
    path = max((path for path in root.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    text = error_of(name, root)
    assert text.startswith(f"{path} could not be read: expected a")
    assert text.endswith("fetch it again or remove it")
    assert not caches(root)


def test_missing_file(layout):
    name, root, _ = layout
    if name == "tiny-imagenet":
        pytest.skip("a file an image: nobody says how many there are")
    path = max(path for path in root.rglob("*") if path.is_file())
    path.unlink()
    text = error_of(name, root)
    assert f"{path.parent} are incomplete: " in text
    assert path.name.removesuffix(".gz") in text


def test_missing_shard(root):
    parquet_shards("cifar10")(root, made("cifar10"))
    (root / "cifar10" / "train-00001-of-00003.parquet").unlink()
    assert "incomplete: train-00001-of-00003.parquet is missing" in error_of("cifar10", root)


@pytest.mark.parametrize("shift", [-1, 1])
def test_wrong_labels(root, shift):
    halves = tuple((x, y + shift) for x, y in made("cifar10"))
    parquet("cifar10")(root, halves)
    assert f"hold labels {shift}..{9 + shift} instead of 0..9: they are not CIFAR-10" in error_of(
        "cifar10", root
    )


def test_missing_labels(root):
    parquet("cifar10")(root, made("cifar10"))
    write_parquet_file(root / "cifar10" / "test.parquet", made("cifar10")[1][0][:2], [1, None])
    assert "test files" in error_of("cifar10", root)


def test_letters_beyond_z(root):
    (x, y), test = made("emnist")
    y[0] = 26
    parquet("emnist", image="image")(root, ((x, y + 1), test))
    assert "labels 1..27 instead of 1..26" in error_of("emnist", root)


def test_no_images(root):
    parquet("cifar10")(root, made("cifar10"))
    schema = pq.read_schema(root / "cifar10" / "train.parquet")
    pq.write_table(schema.empty_table(), root / "cifar10" / "train.parquet")
    assert "the training files" in error_of("cifar10", root)


def test_images_of_another_dataset(root):
    parquet("cifar10")(root, made("fmnist"))
    assert "images of 32x32, but the one in row 0 has 28x28" in error_of("cifar10", root)


def test_idx_images_of_another_size(root):
    halves = tuple((x[:, :, :20, :20], y) for x, y in made("fmnist"))
    idx("FashionMNIST/raw", ("train", "t10k"))(root, halves)
    assert "images of shape (1, 20, 20) instead of (1, 28, 28)" in error_of("fmnist", root)


@pytest.mark.parametrize("columns", [{"image": "picture"}, {"label": "class"}])
def test_unknown_columns(root, columns):
    parquet("cifar10", **columns)(root, made("cifar10"))
    text = error_of("cifar10", root)
    assert "expected the columns img or image" in text
    assert next(iter(columns.values())) in text


def test_broken_image(root):
    parquet("cifar10")(root, made("cifar10"))
    pq.write_table(
        pa.table({"img": [{"bytes": b"\x89PNG\r\n\x1a\nrest", "path": None}], "label": [0]}),
        root / "cifar10" / "test.parquet",
    )
    assert "an image in every row, but row 0 holds none" in error_of("cifar10", root)


def test_more_images_than_labels(root):
    idx("FashionMNIST/raw", ("train", "t10k"))(root, made("fmnist"))
    path = root / "FashionMNIST/raw/t10k-labels-idx1-ubyte"
    path.write_bytes(idx_bytes(np.zeros(N_TEST - 1)))
    assert f"has images ({N_TEST}), but it has {N_TEST - 1}" in error_of("fmnist", root)


def test_pickles_cannot_run_code(root, tmp_path):
    class Attack:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    cifar100_pickles(root, made("cifar100"))
    (root / "cifar-100-python" / "test").write_bytes(pickle.dumps({"data": Attack(), "fine_labels": []}))
    assert "could not be read" in error_of("cifar100", root)
    assert not (tmp_path / "ran").exists()


def test_data_folder_is_a_file(root):
    path = root / "file"
    path.touch()
    assert f"{path} is a file" in error_of("cifar10", path)


def test_data_folder_that_may_not_be_searched(root, monkeypatch):
    def refuse(*_):
        raise PermissionError("Permission denied")

    monkeypatch.setattr(ParquetFiles, "find", refuse)
    assert f"{root / 'cifar10'} cannot be searched (Permission denied)" in error_of("cifar10", root)


# Downloads


def test_nothing_found(root, no_download):
    text = error_of("cifar10", root)
    for part in (
        root,
        "in cifar10",
        "in cifar-10-batches-py",
        "no network",
        "--data-dir",
        "--dataset digits",
    ):
        assert str(part) in text


def test_download_can_be_forbidden(root, monkeypatch):
    monkeypatch.setattr(pfl_benchmark.datasets.loading, "fetch", None)
    assert "downloading is off" in error_of("cifar10", root, download=False)


@pytest.mark.parametrize("name", [name for name, info in DATASETS.items() if info.download])
def test_no_network(name, root, monkeypatch):
    """Through the real torchvision, whose import is repaired where its wheel does not fit torch's."""

    def refuse(*_, **__):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    # Debian's files would be found on some machines.
    monkeypatch.setattr(pfl_benchmark.datasets.loading, "_find", lambda *_: None)
    text = error_of(name, root)
    assert "the download failed" in text
    assert f"of {DATASETS[name].download.what}" in text
    vision = import_torchvision("datasets")
    command = re.search(r'python -c "(.*?)"', text)[1]  # which torchvision understands
    for kind, call in re.findall(r"torchvision\.datasets\.(\w+)\((.*?)\)", command):
        inspect.signature(getattr(vision, kind)).bind(**eval(f"dict(root={call})"))
    for kind, call in re.findall(r"(download_and\w+)\((.*?)\)", command):
        given = eval(f"[lambda *a, **k: (a, k)][0]({call})")
        inspect.signature(getattr(vision.utils, kind)).bind(*given[0], **given[1])
    assert "Name or service not known" in text
    assert not list(root.iterdir())


def fake_torchvision(monkeypatch, write):
    def make(scratch, download):
        assert download
        write(Path(scratch))

    monkeypatch.setattr(
        pfl_benchmark.datasets.download,
        "_import_torchvision_datasets",
        lambda: types.SimpleNamespace(CIFAR10=make),
    )


def test_download_goes_into_the_data_folder(tmp_path, monkeypatch):
    fake_torchvision(monkeypatch, lambda folder: cifar10_pickles(folder, made("cifar10")))
    root = tmp_path / "not" / "yet"
    assert_holds(load("cifar10", root), made("cifar10"))
    assert [path.name for path in root.iterdir()] == ["cifar-10-batches-py"]


@pytest.mark.parametrize("name", ["svhn", "tiny-imagenet"])
def test_downloads_of_several_files_and_of_archives(name, root, monkeypatch):
    """What torchvision is asked for, in the folder that is moved."""
    write, asked = {"svhn": mat("svhn"), "tiny-imagenet": tiny("tiny-imagenet-200", False)}[name], []

    def svhn(folder, download, split):
        asked.append(split)
        if split == "test":
            write(Path(folder).parent, made(name))

    def unpack(url, folder, md5):
        asked.append((url, md5))
        write(Path(folder), made(name))

    fake = types.SimpleNamespace(SVHN=svhn, utils=types.SimpleNamespace(download_and_extract_archive=unpack))
    monkeypatch.setattr(pfl_benchmark.datasets.download, "_import_torchvision_datasets", lambda: fake)
    assert_holds(load(name, root), made(name))
    info = DATASETS[name].download
    assert asked == (["train", "test"] if name == "svhn" else [(info.url, info.md5)])
    assert [path.name for path in root.iterdir()] == [info.folder]


DAMAGE = {
    "svhn": (mat("svhn"), "svhn/test_32x32.mat", ["a MATLAB file with X and y"]),
    "tiny-imagenet": (
        tiny("tiny-imagenet-200", False),
        "tiny-imagenet-200/val/images/val_0003.JPEG",
        ["expected an image"],
    ),
    "tiny-imagenet notes": (
        tiny("tiny-imagenet-200", False),
        "tiny-imagenet-200/val/val_annotations.txt",
        ["named in val_annotations.txt, but it is in none"],
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_files_of_further_layouts(case, root):
    write, path, parts = DAMAGE[case]
    name = case.split()[0]
    write(root, made(name))
    (root / path).write_bytes(b"nothing")
    text = error_of(name, root)
    assert all(part in text for part in [path.split("/")[-1], *parts])


@pytest.mark.parametrize("half", ["train", "val"])
def test_half_of_tiny_imagenet(half, root):
    tiny("tiny-imagenet-200", True)(root, made("tiny-imagenet"))
    shutil.rmtree(root / "tiny-imagenet-200" / half)
    assert f"are incomplete: {half} has no images" in error_of("tiny-imagenet", root)


def test_download_for_a_read_only_data_folder(root, cache_home, monkeypatch):
    fake_torchvision(monkeypatch, lambda folder: cifar10_pickles(folder, made("cifar10")))
    root.chmod(0o555)
    try:
        assert str(cache_home) in load("cifar10", root).source
    finally:
        root.chmod(0o755)
    assert not list(root.iterdir())


def test_broken_download_leaves_nothing(root, monkeypatch):
    def half(folder):
        cifar10_pickles(folder, made("cifar10"))
        raise RuntimeError("File not found or\ncorrupted.")

    fake_torchvision(monkeypatch, half)
    for folder in (root, root / "not" / "yet"):
        assert "the download failed (File not found or corrupted.)" in error_of("cifar10", folder)
        assert not list(root.iterdir())


def test_without_torchvision(root, monkeypatch):
    for module in ("torchvision", "torchvision.datasets"):
        monkeypatch.setitem(sys.modules, module, None)
    assert "the download failed (" in error_of("cifar10", root)


def test_images_of_emnist_are_not_squeezed_into_letters(root, no_download):
    parquet("ocr_letters", image="image")(root, made("emnist"))
    text = error_of("letters", root)
    assert "expected images of this dataset" in text
    assert "row 0 holds one of 28x28 pixels; letters have 16x8" in text
