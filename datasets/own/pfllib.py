"""``pfllib:PATH``: a data-set folder that PFLlib's generators made (Zhang et al., JMLR 2025)."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from pfl_benchmark.datasets.layouts.base import unreadable
from pfl_benchmark.datasets.own.exported import with_facts
from pfl_benchmark.datasets.own.found import Found, in_order, padded
from pfl_benchmark.datasets.own.vectors import of_vectors
from pfl_benchmark.datasets.people.leaf_files import EXTRA
from pfl_benchmark.datasets.people.pickled import load_arrays
from pfl_benchmark.errors import UserError

__all__ = ["read_pfllib"]

_EXPECTED = "PFLlib's dictionary with the arrays x and y"


def read_pfllib(root: Path, side: int) -> Found:
    """Read ``train/0.npz``, ``test/0.npz`` and so on, a client each, and ``config.json``.

    Nothing of their pickles but arrays is made.

    Raises:
        UserError: files are missing or damaged, or hold something else.
    """
    if side:
        raise UserError(f"{root}@{side}: PFLlib's images have one size; drop @{side}")
    halves = {half: {path.stem: path for path in (root / half).glob("*.npz")} for half in ("train", "test")}
    lacking = next((half for half in halves if not halves[half]), "")
    if lacking:
        raise UserError(
            f"{root} has no files {lacking}/*.npz; expected a folder with train, test and config.json, as "
            "PFLlib's generators make it, such as dataset/MNIST"
        )
    if alone := sorted({*halves["train"]} ^ {*halves["test"]}):
        half = "test" if alone[0] in halves["train"] else "train"
        raise UserError(
            f"{root} has no {half}/{alone[0]}.npz beside its other half; expected both of a client"
        )
    facts, classes = _config(root)
    names = in_order([*halves["train"]])
    parts = [(name, half, *_read(halves[half][name])) for name in names for half in halves]
    if len({x.shape[1:] for _, _, x, _ in parts if len(x)}) > 1:
        raise UserError(f"{root} has samples of different shapes; expected one shape")
    order = dict(zip(names, padded(names), strict=True))
    x = np.concatenate([x for _, _, x, _ in parts if len(x)])
    y = np.concatenate([y for _, _, _, y in parts])
    clients = [order[name] for name, _, _, y in parts for _ in y]
    test = np.repeat([half == "test" for _, half, _, _ in parts], [len(y) for *_, y in parts])
    count = max(classes, int(y.max()) + 1)
    labels = [str(label) for label in y]
    found = Found(
        x, labels, tuple(map(str, range(count))), clients, test, f"PFLlib's files of {len(names)} clients"
    )
    if facts:
        if facts.get("kind") == "images":
            x = np.round(127.5 * (x.astype(np.float64) + 1))
        return with_facts(root, dataclasses.replace(found, x=x), facts)
    if x.ndim == 2 and x.dtype.kind in "iu" and x.min() >= 0:
        told = f"{found.told}; read as texts of {int(x.max()) + 1:,} symbols"
        return dataclasses.replace(
            found, x=x.astype(np.int32), kind="characters", symbols=int(x.max()) + 1, told=told
        )
    if not np.isfinite(x).all():
        raise UserError(f"{root}: x holds numbers that are not finite; expected pixels or features")
    return of_vectors(root, found, x)


def _config(root: Path) -> tuple[dict[str, Any], int]:
    """What our own exports say, and the number of classes; {} and 0 where there is no such file."""
    path = root / "config.json"
    if not path.is_file():
        return {}, 0
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return dict(content.get(EXTRA, {})), int(content.get("num_classes", 0))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise unreadable(path, "PFLlib's config.json", error) from error


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Samples and labels of a file: an object array of one dictionary, pickled by NumPy."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open("data.npy") as file:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, _, kind = read[version](file)
            if shape != () or kind != np.dtype(object):
                raise ValueError(f"it holds {kind} {list(shape)}")
            content = load_arrays(cast(BinaryIO, file))
        if isinstance(content, np.ndarray):
            content = content.item()
        x, y = np.asarray(content["x"]), np.asarray(content["y"])
        if x.dtype.kind not in "iufb" or y.dtype.kind not in "iu" or y.ndim != 1 or y.min(initial=0) < 0:
            raise ValueError(f"x is {x.dtype} {list(x.shape)}, y is {y.dtype} {list(y.shape)}")
    except Exception as error:  # a damaged archive or pickle can raise anything
        raise unreadable(path, _EXPECTED, error) from error
    if len(x) != len(y):
        raise unreadable(path, "as many labels as samples", f"it has {len(y)} and {len(x)}")
    return x, y.astype(np.int64)
