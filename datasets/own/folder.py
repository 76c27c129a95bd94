"""Folders of images, as torchvision's ImageFolder has them."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path

import numpy as np

from pfl_benchmark.datasets import cache
from pfl_benchmark.datasets.own.found import Found
from pfl_benchmark.datasets.own.images import decode
from pfl_benchmark.errors import UserError

__all__ = ["read_folder"]

# Those of torchvision.datasets.folder.
_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_LAYOUTS = "PATH/CLASS/, PATH/train/CLASS/ and PATH/test/CLASS/, or PATH/CLIENT/CLASS/"


def read_folder(root: Path, side: int) -> Found:
    """Read the images below `root`.

    They lie in one subfolder a class; above these there may be two, ``train`` and ``test`` (or ``val``), or
    one a client. Samples are in the order of the files' names, whatever their folder.

    Raises:
        UserError: there are none, they lie otherwise, or one cannot be read.
    """
    paths, others = _images(root)
    depths = {len(path.parts) for path in paths}
    if depths not in ({2}, {3}):
        odd = next((path for path in paths if len(path.parts) not in (2, 3)), paths[0])
        raise UserError(
            f"{root} has an image in {odd}, and others elsewhere; expected all in {_LAYOUTS}"
            if len(depths) > 1
            else f"{root} has images in {odd.parent}; expected them in {_LAYOUTS}"
        )
    paths.sort(key=lambda path: (path.name, path.parts))
    labels = [path.parent.name for path in paths]
    test: np.ndarray | None = None
    clients: list[str] | None = None
    layout = "one subfolder a class"
    if depths == {3}:
        tops = [path.parts[0] for path in paths]
        if "train" in tops:
            test = _halves(root, tops)
            layout = " and ".join(sorted(set(tops), key=lambda top: top != "train"))
            layout += " with one subfolder a class"
        else:
            clients, layout = tops, "one subfolder a client, in it one a class"
    x = _decoded(root, paths, side)
    told = f"{layout}{f'; {others:,} files that are no images skipped' if others else ''}"
    return Found(x, labels, tuple(sorted(set(labels))), clients, test, told)


def _images(root: Path) -> tuple[list[Path], int]:
    """The images below `root`, relative to it, and the number of other files; hidden ones do not count."""
    if not root.is_dir():
        problem = "is a file" if root.exists() else "does not exist"
        raise UserError(f"the folder {root} {problem}; expected a folder with images in {_LAYOUTS}")
    paths: list[Path] = []
    problems: list[OSError] = []
    others = 0
    for place, folders, names in os.walk(root, followlinks=True, onerror=problems.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.startswith("."):
                continue
            if name.lower().endswith(_ENDINGS):
                paths.append((Path(place) / name).relative_to(root))
            else:
                others += 1
        if len(Path(place).relative_to(root).parts) > 8:
            raise UserError(f"{root} has folders within folders, such as {place}; expected {_LAYOUTS}")
    if problems:
        raise UserError(
            f"{problems[0].filename} cannot be read: {problems[0].strerror}; give yourself access"
        )
    if not paths:
        raise UserError(f"{root} holds no images ({', '.join(_ENDINGS)}); expected them in {_LAYOUTS}")
    return paths, others


def _halves(root: Path, tops: list[str]) -> np.ndarray:
    """Which images are for testing, bool [N], from the folders at the top."""
    beside = sorted(set(tops) - {"train"})
    if beside not in (["test"], ["val"]):
        found = ", ".join(beside) or "nothing else"
        raise UserError(f"{root} has train and {found}; expected train and test (or val)")
    return np.array([top != "train" for top in tops])


def _decoded(root: Path, paths: list[Path], side: int) -> np.ndarray:
    files = [root / path for path in paths]
    names = hashlib.sha256("\n".join(map(str, paths)).encode()).hexdigest()[:16]
    arrays = cache.cached(
        f"folder-{names}-{side}",
        files,
        None,
        lambda: {"x": decode([(str(file), partial(file.read_bytes)) for file in files], side)},
        ("x",),
    )
    return arrays["x"]
