"""Folders of images, as torchvision's ImageFolder has them."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import numpy as np

from pfl_benchmark.datasets import cache
from pfl_benchmark.datasets.layouts.images import decode, describe
from pfl_benchmark.datasets.own.found import Found
from pfl_benchmark.errors import UserError, printable, why

__all__ = ["read_folder"]

# Those of torchvision.datasets.folder.
_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_HALVES = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("test", "testing", "tst"), "test"),
    **dict.fromkeys(("val", "valid", "validation", "eval", "evaluation", "dev", "holdout"), "val"),
}
_LAYOUTS = "PATH/CLASS/, PATH/train/CLASS/ and PATH/test/CLASS/, or PATH/CLIENT/CLASS/"


def read_folder(root: Path, side: int) -> Found:
    """Read the images below `root`.

    They lie in one subfolder a class; above these there may be two, for training and for testing (`_half`
    knows them by their names), or one a client. Samples are in the order of the files' names, whatever their
    folder.

    Raises:
        UserError: there are none, they lie otherwise, or one cannot be read.
    """
    paths, others = _images(root)
    depths = {len(path.parts) for path in paths}
    if depths not in ({2}, {3}):
        odd = next((path for path in paths if len(path.parts) not in (2, 3)), paths[0])
        where = f"in {odd.parent}" if odd.parent.name else "in no subfolder of a class"
        raise UserError(
            f"{root} has an image in {odd}, and others elsewhere; expected all in {_LAYOUTS}"
            if len(depths) > 1
            else f"{root} has images {where}; expected them in {_LAYOUTS}"
        )
    paths.sort(key=lambda path: (path.name, path.parts))
    labels = [path.parent.name for path in paths]
    test: np.ndarray | None = None
    clients: list[str] | None = None
    layout = "one subfolder a class"
    if depths == {3}:
        tops = [path.parts[0] for path in paths]
        if any(map(_half, tops)):
            training, testing = _halves(root, sorted(set(tops)))
            test = np.array([top == testing for top in tops])
            layout = f"{training} and {testing} with one subfolder a class"
        else:
            clients, layout = tops, "one subfolder a client, in it one a class"
    decoded = _decoded(root, paths, side)
    told = f"{layout}{f'; {others:,} files that are no images skipped' if others else ''}{describe(decoded)}"
    return Found(decoded["x"], labels, tuple(sorted(set(labels))), clients, test, told)


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _images(root: Path) -> tuple[list[Path], int]:
    """The images below `root`, relative to it, and the number of other files; hidden ones do not count."""
    if not os.path.isdir(root):  # False, where pathlib raises: too long a name
        problem = "is a file" if os.path.exists(root) else "does not exist"
        raise UserError(f"the folder {root} {problem}; expected a folder with images in {_LAYOUTS}")
    paths: list[Path] = []
    problems: list[OSError] = []
    others = 0
    for folder, folders, names in os.walk(root, followlinks=True, onerror=problems.append):
        here = Path(folder)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders:
            if (here / name).is_symlink() and here.resolve().is_relative_to((here / name).resolve()):
                raise UserError(
                    f"{printable(here / name)} is a link to a folder that it is in; remove the link"
                )
        for name in names:
            if name.startswith("."):
                continue
            if not name.lower().endswith(_ENDINGS):
                others += 1
                continue
            if not (here / name).is_file():
                what = "a link to nothing" if (here / name).is_symlink() else "no regular file"
                raise UserError(f"{printable(here / name)} is {what}; replace or remove it")
            paths.append((here / name).relative_to(root))
        if len(here.relative_to(root).parts) > 8:
            raise UserError(
                f"{root} has folders within folders, such as {printable(here)}; expected {_LAYOUTS}"
            )
    if odd := next((path for path in paths if not _is_text(path)), None):
        raise UserError(f"{printable(root / odd)} has a name that is not UTF-8; rename it")
    if problems:
        raise UserError(f"{problems[0].filename} cannot be read: {why(problems[0])}; give yourself access")
    if not paths:
        raise UserError(f"{root} holds no images ({', '.join(_ENDINGS)}); expected them in {_LAYOUTS}")
    return paths, others


def _half(name: str) -> str:
    """Whether a folder's name says that it is for ``train``, ``test`` or ``val``; empty: it does not.

    In any spelling, alone or as a word of the name: Training, TEST, seg_train, test-images, valSet.
    """
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    known = {word for word in map(str.lower, words) if word in _HALVES}
    return _HALVES[known.pop()] if len(known) == 1 else ""


def _halves(root: Path, tops: list[str]) -> tuple[str, str]:
    """The folder for training and the one for testing."""
    kinds = {top: _half(top) for top in tops}
    by_kind = {kind: [top for top in tops if kinds[top] == kind] for kind in ("train", "test", "val", "")}
    testing = by_kind["test"] + by_kind["val"]
    if len(by_kind["train"]) == 1 and len(testing) == 1 and not by_kind[""]:
        return by_kind["train"][0], testing[0]
    named = " and ".join(top for top in tops if kinds[top])
    if by_kind[""]:
        others = ", ".join(by_kind[""][:3])
        raise UserError(
            f"{root} has {named} beside {others}; expected one folder for training and one for testing, or "
            f"one a client: move the others away, or, if {named} is a client, give it another name"
        )
    raise UserError(
        f"{root} has {named}; expected one folder for training and one for testing: join the others, or move "
        "them away"
    )


def _decoded(root: Path, paths: list[Path], side: int) -> dict[str, np.ndarray]:
    files = [root / path for path in paths]
    names = hashlib.sha256("\n".join(map(str, paths)).encode()).hexdigest()[:16]
    return cache.cached(
        f"folder-{names}-{side}",
        files,
        None,
        lambda: decode([(printable(file), file.read_bytes) for file in files], side),
        ("x", "transparent", "turned"),
    )
