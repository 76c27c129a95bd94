"""Splits written in the forms of LEAF and PFLlib: everybody's training and test samples."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pfl_benchmark.datasets.data import Dataset, DatasetInfo
from pfl_benchmark.datasets.own.exported import VECTORS, facts_of
from pfl_benchmark.datasets.own.leaf import SPELLED
from pfl_benchmark.datasets.people.leaf_files import EXTRA
from pfl_benchmark.datasets.people.plays import ALPHABET
from pfl_benchmark.datasets.splits import Split
from pfl_benchmark.errors import UserError, why

__all__ = ["FORMS", "export"]

_HALVES = ("train", "test")


def export(form: str, folder: Path, info: DatasetInfo, dataset: Dataset, split: Split) -> None:
    """Write a split into a new folder, which appears whole or not at all.

    form: one of `FORMS`.

    Raises UserError where the folder exists and is not empty, or cannot be written, or data drift.
    """
    if split.turn:
        raise UserError(
            f"--export {form}: files cannot say that data change in round {split.turn}; drop --shift drift"
        )
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"--export: {folder} exists and is not empty; give the name of a new folder")
        scratch = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
        try:
            for half in _HALVES:
                (scratch / half).mkdir(parents=True)
            FORMS[form](scratch, info, dataset, split)
            if dataset.vectors is not None:
                np.save(scratch / VECTORS, dataset.vectors)
            if folder.exists():
                folder.rmdir()
            os.replace(scratch, folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise UserError(
            f"--export: {folder} cannot be written: {why(error)}; choose another folder"
        ) from error


def _names(split: Split) -> list[str]:
    """Names of the clients whose order by the alphabet is that of their numbers."""
    width = len(str(split.clients - 1))
    return [f"{client:0{width}}" for client in range(split.clients)]


def _leaf(folder: Path, info: DatasetInfo, dataset: Dataset, split: Split) -> None:
    """JSON with users, num_samples and user_data: pixels from 0 to 1 in one row, Shakespeare as text."""
    text = info.kind == "characters" and info.class_names == tuple(SPELLED)
    for half in _HALVES:
        samples, data = getattr(dataset, half), {}
        for name, rows in zip(_names(split), getattr(split, half), strict=True):
            x, y = samples.x[rows], samples.y[rows].tolist()
            if text:
                lines = ["".join(ALPHABET[code] for code in line) for line in x.tolist()]
                data[name] = {"x": lines, "y": [ALPHABET[label] for label in y]}
                continue
            if info.kind == "images":
                x = x.reshape(len(x), -1) / 255
            data[name] = {"x": x.tolist(), "y": y}
        sizes = [len(own["y"]) for own in data.values()]
        content: dict[str, Any] = {"users": list(data), "num_samples": sizes, "user_data": data}
        content[EXTRA] = facts_of(info, dataset)
        path = folder / half / f"all_data_{half}.json"
        path.write_text(json.dumps(content), encoding="utf-8")


def _pfllib(folder: Path, info: DatasetInfo, dataset: Dataset, split: Split) -> None:
    """``train/0.npz`` and so on: pixels from -1 to 1, everything else as it is; and ``config.json``."""
    for half in _HALVES:
        samples = getattr(dataset, half)
        for client, rows in enumerate(getattr(split, half)):
            x = samples.x[rows]
            if info.kind == "images":
                x = (x / 127.5 - 1).astype(np.float32)
            elif info.kind in ("words", "characters"):
                x = x.astype(np.int64)
            content = np.array({"x": x, "y": samples.y[rows]}, dtype=object)
            np.savez_compressed(folder / half / f"{client}.npz", data=content)
    counts = split.class_counts(dataset.train.y)
    about = {
        "num_clients": split.clients,
        "num_classes": info.classes,
        "non_iid": True,
        "balance": len(set(split.train_sizes.tolist())) == 1,
        "partition": "",
        "Size of samples for labels in clients": [
            [[label, int(count)] for label, count in enumerate(row) if count] for row in counts
        ],
        "alpha": 0.0,
        "batch_size": 10,
        EXTRA: facts_of(info, dataset),
    }
    (folder / "config.json").write_text(json.dumps(about), encoding="utf-8")


FORMS: dict[str, Callable[[Path, DatasetInfo, Dataset, Split], None]] = {"leaf": _leaf, "pfllib": _pfllib}
