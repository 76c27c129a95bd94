"""`load`: find a dataset's files, read them (once), and check what was read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pfl_benchmark.datasets import cache
from pfl_benchmark.datasets.data import Dataset, DatasetInfo, Samples
from pfl_benchmark.datasets.download import fetch
from pfl_benchmark.datasets.layouts import Files, Layout
from pfl_benchmark.datasets.layouts.base import one_line
from pfl_benchmark.datasets.registry import DATASETS
from pfl_benchmark.errors import UserError, nearest

__all__ = ["load"]


def load(name: str, data_dir: str | Path | None = None, download: bool = True, embedding: int = 0) -> Dataset:
    """Return the dataset `name` (a key of `DATASETS`).

    Its files are looked for in `data_dir` (None: the environment's PFL_DATA_DIR) and in the user's cache
    folder, in the order of the dataset's layouts; failing that they are downloaded into `data_dir`, or into
    the cache folder where there is no `data_dir` or it is read-only. `embedding` is the width of the word
    vectors that a text dataset is wanted with (0: any).

    Raises UserError for an unknown name, for files that are missing, damaged or of another dataset, and where
    nothing was found and the download failed.
    """
    if name not in DATASETS:
        raise UserError(
            f"unknown dataset '{name}'{nearest(name, DATASETS)}: choose from {', '.join(DATASETS)}; "
            "images of your own, or what a record was made on: --plugin folder:PATH, parquet:PATH or, with "
            "--columns, parquet:PATH?image=img"
        )
    info = DATASETS[name]
    if info.reader is not None:
        return info.reader.load(info, _roots(data_dir), download, embedding)
    if info.builtin is not None:
        train, test = _made(info, info.builtin)
        return _dataset(info, train, test, source=f"{info.title} ({info.origin})")
    roots = _roots(data_dir)
    found = _find(info, roots)
    if found is None:
        problem = _download(info, roots) if download or info.download is None else "downloading is off"
        found = _find(info, roots)
        if found is None:
            raise _not_found(info, roots, problem)
    layout, root, files = found
    folder = root / layout.folder
    beside = None if Path(layout.folder).is_absolute() else folder
    arrays = cache.cached(
        name,
        (*files.train, *files.test),
        beside,
        lambda: _decode(info, layout, files, folder),
        root=folder,
        fits=lambda found: (
            not any(_misfit(info, found[f"{half}_x"], found[f"{half}_y"]) for half in ("train", "test"))
        ),
    )
    train = Samples(arrays["train_x"], arrays["train_y"])
    test = Samples(arrays["test_x"], arrays["test_y"])
    return _dataset(info, train, test, source=f"{layout.title} in {folder}")


def _dataset(info: DatasetInfo, train: Samples, test: Samples, source: str) -> Dataset:
    return info.holding(train, test, source + info.partial(len(train), len(test)))


def _roots(data_dir: str | Path | None) -> list[Path]:
    """Return the data folders to look in, the preferred one first."""
    own = cache.user_cache() / "data"
    given = data_dir or os.environ.get("PFL_DATA_DIR")
    if not given:
        return [own]
    root = Path(given).expanduser().absolute()
    if root.exists() and not root.is_dir():
        raise UserError(f"the data folder {root} is a file: give the folder that holds the datasets")
    return [root, own]


def _find(info: DatasetInfo, roots: list[Path]) -> tuple[Layout, Path, Files] | None:
    for root in roots:
        for layout in info.layouts:
            try:
                files = layout.find(root)
            except OSError as error:
                reason = f"{root / layout.folder} cannot be searched ({one_line(error)})"
                raise UserError(f"{reason}: give yourself access to it, or name another folder") from error
            if files is not None:
                return layout, root, files
    return None


def _download(info: DatasetInfo, roots: list[Path]) -> str:
    """Download into the first folder that can be written; return what went wrong, empty for nothing."""
    if info.download is None:
        return info.how_to_get.format(folder=roots[0]) or "it cannot be downloaded"
    into = next((root for root in roots if cache.is_writable(root)), None)
    if into is None:
        return f"it cannot be downloaded, since {roots[-1]} is read-only"
    try:
        fetch(info.download, into)
    except Exception as error:  # whatever stops a download, the remedy is the same
        by_hand = f"by hand: {info.download.command('.')}, then move {info.download.folder} to {into}"
        return f"the download failed ({one_line(error)}) of {info.download.what}; {by_hand}"
    return ""


def _not_found(info: DatasetInfo, roots: list[Path], problem: str) -> UserError:
    places: dict[bool, list[str]] = {False: [], True: []}
    for layout in info.layouts:
        places[Path(layout.folder).is_absolute()].append(f"{layout.title} in {layout.folder}")
    looked = ", and for ".join(" or ".join(some) for some in places.values() if some)
    if not looked:
        return UserError(f"dataset '{info.name}' has neither a `builtin` nor layouts of files; give it one")
    below = " and ".join(map(str, roots))
    return UserError(
        f"dataset '{info.name}' was not found: looked below {below} for {looked}; {problem}; put files "
        "there, name another folder with --data-dir or PFL_DATA_DIR, or use --dataset digits, which needs "
        "no files"
    )


def _made(info: DatasetInfo, builtin: Callable[[], tuple[Samples, Samples]]) -> tuple[Samples, Samples]:
    """What a dataset without files makes, checked."""
    try:
        made = builtin()
    except OSError as error:
        raise UserError(f"dataset '{info.name}' cannot be read: {one_line(error)}") from error
    parts = made if isinstance(made, tuple) and len(made) == 2 else ()
    if not parts or not all(
        isinstance(part, Samples) and isinstance(part.x, np.ndarray) and isinstance(part.y, np.ndarray)
        for part in parts
    ):
        raise UserError(
            f"the `builtin` of '{info.name}' does not return two `Samples` of NumPy arrays, one for training "
            "and one for testing; mend it"
        )
    train, test = parts
    if info.kind == "images" and ({len(info.mean), len(info.std)} - {1, info.shape[0]} or min(info.std) <= 0):
        raise UserError(
            f"'{info.name}' has mean {info.mean} and std {info.std}; expected a number for each of its "
            f"{info.shape[0]} channels, std above 0"
        )
    for half, part in (("training", train), ("test", test)):
        if problem := _misfit(info, part.x, part.y):
            raise UserError(f"the {half} part of '{info.name}' has {problem}; mend its `builtin`")
    return train, test


def _misfit(info: DatasetInfo, x: np.ndarray, y: np.ndarray) -> str:
    """What is wrong with the arrays of one half, as they are used; empty if nothing is."""
    kind = np.dtype({"rows": np.float64, "series": np.float32}.get(info.kind, np.uint8))
    if x.dtype != kind or y.dtype != np.int64:
        return f"{x.dtype} {info.unit} and {y.dtype} labels instead of {kind} and int64"
    if y.shape != x.shape[:1]:
        one = {"images": "an image", "rows": "a row"}.get(info.kind, "a sample")
        return f"{info.unit} {list(x.shape)} and labels {list(y.shape)} instead of one label {one}"
    return _problem(info, x, y, 0)


def _problem(info: DatasetInfo, x: np.ndarray, y: np.ndarray, first: int) -> str:
    """What is wrong with images and labels that begin with `first`; empty if nothing is."""
    if len(x) == 0:
        return f"no {info.unit}"
    if x.shape[1:] != info.shape:
        return f"{info.unit} of shape {x.shape[1:]} instead of {info.shape}"
    if y.min() < first or y.max() >= first + info.classes:
        return f"labels {y.min()}..{y.max()} instead of {first}..{first + info.classes - 1}"
    return ""


def _decode(info: DatasetInfo, layout: Layout, files: Files, folder: Path) -> dict[str, np.ndarray]:
    train_x, train_y = layout.read(files.train, info.shape, "train")
    test_x, test_y = layout.read(files.test, info.shape, "test")
    # Some copies of a one-based dataset are already zero-based; the full training set tells which.
    first = info.first_label if train_y.min(initial=info.first_label) >= info.first_label else 0
    for half, x, y in (("training", train_x, train_y), ("test", test_x, test_y)):
        if problem := _problem(info, x, y, first):
            raise UserError(
                f"the {half} files in {folder} hold {problem}: they are not {info.title}; replace them"
            )
    return {"train_x": train_x, "train_y": train_y - first, "test_x": test_x, "test_y": test_y - first}
